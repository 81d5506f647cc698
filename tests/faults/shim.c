/* Faults of file calls below one folder, for a process that has this library preloaded.

   Every call that opens, writes, synchronises, renames, links, removes or locks a file below the
   root is counted and logged. At the n-th, one of these happens (see `Mode` in shim.py):

   kill     the call and all later ones have no effect: to the disk the process has died
   torn     the same, but half of a write still reaches the file
   power    as kill; besides, only what was synchronised survives (the log says what was)
   error    the call fails once with a given error
   full     so do all later ones that need room
   short    half of a write is done, and said to be done
   signal   a signal comes, and the call goes on

   SQLite's own calls go through here as well. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NONE, KILL, TORN, POWER, ERROR, FULL, SHORT, SIGNAL };

static char root[PATH_MAX], shadow[PATH_MAX];
static int mode, error_number, armed, dead;
static long at, calls, copies;
static char *text;
static size_t used;
static const size_t room = 16 << 20;
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static __thread int inside;

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static void note(const char *form, ...) {
  va_list rest;
  va_start(rest, form);
  if (text && used < room) {
    int length = vsnprintf(text + used, room - used, form, rest);
    if (length > 0) used += (size_t)length < room - used ? (size_t)length : room - used;
  }
  va_end(rest);
}

/* --- for the one who tests ------------------------------------------------------------------- */

void faults_arm(const char *below, const char *copy_to, int what, long number, int errnum) {
  if (!text) text = malloc(room);
  snprintf(root, sizeof root, "%s", below);
  snprintf(shadow, sizeof shadow, "%s", copy_to);
  mode = what, at = number, error_number = errnum;
  calls = copies = dead = 0, used = 0;
  if (text) text[0] = 0;
  armed = 1;
}
void faults_disarm(void) { armed = 0; }
long faults_calls(void) { return calls; }
int faults_dead(void) { return dead; }
const char *faults_log(void) { return text ? text : ""; }

/* --- which file ------------------------------------------------------------------------------ */

static int below(const char *path) {
  size_t length = strlen(root);
  return !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

static void of_descriptor(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, PATH_MAX - 1);
  path[length < 0 ? 0 : length] = 0;
}

static void absolute(int folder, const char *given, char *path) {
  char base[PATH_MAX];
  if (given[0] == '/') {
    snprintf(path, PATH_MAX, "%s", given);
    return;
  }
  if (folder == AT_FDCWD) {
    if (!getcwd(base, sizeof base)) base[0] = 0;
  } else
    of_descriptor(folder, base);
  if (snprintf(path, PATH_MAX, "%s/%s", base, given) >= PATH_MAX) path[0] = 0;
}

/* --- the fault ------------------------------------------------------------------------------- */

static int needs_room(const char *what) {
  return !strcmp(what, "write") || !strcmp(what, "create") || !strcmp(what, "mkdir") ||
         !strcmp(what, "link") || !strcmp(what, "rename") || !strcmp(what, "fsync");
}

/* 0: go on. Above 0: fail with this error. -1: do half of it; -2: half of it, as the last. */
static int fault(const char *what, const char *path) {
  int found = 0;
  if (!armed || inside || !below(path)) return 0;
  pthread_mutex_lock(&lock);
  if (dead) {
    found = EIO;
  } else {
    calls++;
    note("call %ld %s %s\n", calls, what, path + strlen(root));
    int now = calls == at, writes = !strcmp(what, "write");
    if (mode == FULL && calls >= at && at > 0 && needs_room(what)) found = error_number;
    if (now && mode == ERROR) found = error_number;
    if (now && mode == SHORT && writes) found = -1;
    if (now && mode == SIGNAL) raise(error_number);
    if (now && (mode == KILL || mode == POWER || (mode == TORN && !writes))) {
      dead = 1;
      found = EIO;
    }
    if (now && mode == TORN && writes) {
      dead = 1;
      found = -2;
    }
  }
  pthread_mutex_unlock(&lock);
  return found;
}

#define STOP(what, path)                                                                           \
  do {                                                                                             \
    int stopped = fault(what, path);                                                               \
    if (stopped > 0) {                                                                             \
      errno = stopped;                                                                             \
      return -1;                                                                                   \
    }                                                                                              \
  } while (0)

/* --- what survives a power cut --------------------------------------------------------------- */

static void synchronised(int fd, const char *path) {
  struct stat about;
  if (mode != POWER || !armed || dead || !below(path) || fstat(fd, &about)) return;
  inside = 1;
  pthread_mutex_lock(&lock);
  if (S_ISDIR(about.st_mode)) {
    DIR *listed = opendir(path);
    struct dirent *one;
    note("folder %lu\n", (unsigned long)about.st_ino);
    while (listed && (one = readdir(listed))) {
      char full[PATH_MAX];
      struct stat its;
      if (!strcmp(one->d_name, ".") || !strcmp(one->d_name, "..")) continue;
      if (snprintf(full, sizeof full, "%s/%s", path, one->d_name) >= PATH_MAX) continue;
      if (lstat(full, &its)) continue;
      note("has %lu %d %s\n", (unsigned long)its.st_ino, S_ISDIR(its.st_mode) ? 1 : 0, one->d_name);
    }
    if (listed) closedir(listed);
  } else {
    char name[PATH_MAX];
    static char block[65536];
    int to = -1;
    if (snprintf(name, sizeof name, "%s/%ld", shadow, ++copies) < PATH_MAX)
      to = REAL(open64)(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    char again[64];
    snprintf(again, sizeof again, "/proc/self/fd/%d", fd);
    int from = REAL(open64)(again, O_RDONLY);
    ssize_t got;
    while (to >= 0 && from >= 0 && (got = read(from, block, sizeof block)) > 0)
      if (REAL(write)(to, block, (size_t)got) != got) abort();
    if (to < 0 || from < 0) abort();
    close(from), close(to);
    note("file %lu %ld\n", (unsigned long)about.st_ino, copies);
  }
  pthread_mutex_unlock(&lock);
  inside = 0;
}

/* The number of a file that is about to go may be given to another. */
static void going(const char *path) {
  struct stat about;
  if (mode == POWER && armed && !dead && below(path) && !lstat(path, &about) &&
      (S_ISDIR(about.st_mode) || about.st_nlink == 1))
    note("gone %lu\n", (unsigned long)about.st_ino);
}

/* --- the calls ------------------------------------------------------------------------------- */

#define OPENED(name, folder, given, ...)                                                           \
  char path[PATH_MAX];                                                                             \
  mode_t bits = 0;                                                                                 \
  if (flags & (O_CREAT | O_TMPFILE)) {                                                             \
    va_list rest;                                                                                  \
    va_start(rest, flags);                                                                         \
    bits = va_arg(rest, mode_t);                                                                   \
    va_end(rest);                                                                                  \
  }                                                                                                \
  absolute(folder, given, path);                                                                   \
  if (flags & (O_CREAT | O_WRONLY | O_RDWR | O_TRUNC)) {                                           \
    STOP(flags & O_CREAT ? "create" : "open", path);                                               \
  } else if (!dead)                                                                                \
    STOP("read", path);                                                                            \
  return REAL(name)(__VA_ARGS__, flags, bits);

int open(const char *given, int flags, ...) { OPENED(open, AT_FDCWD, given, given) }
int open64(const char *given, int flags, ...) { OPENED(open64, AT_FDCWD, given, given) }
int openat(int folder, const char *given, int flags, ...) {
  OPENED(openat, folder, given, folder, given)
}
int openat64(int folder, const char *given, int flags, ...) {
  OPENED(openat64, folder, given, folder, given)
}

#define WRITTEN(name, whole, half)                                                                 \
  char path[PATH_MAX];                                                                             \
  if (!armed || inside) return whole;                                                              \
  of_descriptor(fd, path);                                                                         \
  int stopped = fault("write", path);                                                              \
  if (stopped > 0) {                                                                               \
    errno = stopped;                                                                               \
    return -1;                                                                                     \
  }                                                                                                \
  return stopped ? half : whole;

ssize_t write(int fd, const void *data, size_t size) {
  WRITTEN(write, REAL(write)(fd, data, size), REAL(write)(fd, data, (size + 1) / 2))
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t where) {
  WRITTEN(pwrite, REAL(pwrite)(fd, data, size, where),
          REAL(pwrite)(fd, data, (size + 1) / 2, where))
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t where) {
  WRITTEN(pwrite64, REAL(pwrite64)(fd, data, size, where),
          REAL(pwrite64)(fd, data, (size + 1) / 2, where))
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
  WRITTEN(writev, REAL(writev)(fd, parts, count), REAL(writev)(fd, parts, (count + 1) / 2))
}

#define SYNCED(name)                                                                               \
  int name(int fd) {                                                                               \
    char path[PATH_MAX];                                                                           \
    if (!armed) return REAL(name)(fd);                                                             \
    of_descriptor(fd, path);                                                                       \
    STOP("fsync", path);                                                                           \
    int found = REAL(name)(fd);                                                                    \
    if (!found) synchronised(fd, path);                                                            \
    return found;                                                                                  \
  }
SYNCED(fsync)
SYNCED(fdatasync)

#define TRUNCATED(name, type)                                                                      \
  int name(int fd, type size) {                                                                    \
    char path[PATH_MAX];                                                                           \
    if (!armed) return REAL(name)(fd, size);                                                       \
    of_descriptor(fd, path);                                                                       \
    STOP("truncate", path);                                                                        \
    return REAL(name)(fd, size);                                                                   \
  }
TRUNCATED(ftruncate, off_t)
TRUNCATED(ftruncate64, off64_t)

int fchmod(int fd, mode_t bits) {
  char path[PATH_MAX];
  if (!armed) return REAL(fchmod)(fd, bits);
  of_descriptor(fd, path);
  STOP("chmod", path);
  return REAL(fchmod)(fd, bits);
}

/* Giving a lock back always works: the system does it for the dead, too. */
int flock(int fd, int how) {
  char path[PATH_MAX];
  if (!armed || (how & LOCK_UN)) return REAL(flock)(fd, how);
  of_descriptor(fd, path);
  STOP("lock", path);
  return REAL(flock)(fd, how);
}

#define LOCKED(name)                                                                               \
  int name(int fd, int what, ...) {                                                                \
    va_list rest;                                                                                  \
    va_start(rest, what);                                                                          \
    void *given = va_arg(rest, void *);                                                            \
    va_end(rest);                                                                                  \
    if (armed && (what == F_SETLK || what == F_SETLKW) &&                                          \
        ((struct flock *)given)->l_type != F_UNLCK) {                                              \
      char path[PATH_MAX];                                                                         \
      of_descriptor(fd, path);                                                                     \
      STOP("lock", path);                                                                          \
    }                                                                                              \
    return REAL(name)(fd, what, given);                                                            \
  }
LOCKED(fcntl)
LOCKED(fcntl64)

#define RENAMED(folder, from, other, to, ...)                                                      \
  char path[PATH_MAX], target[PATH_MAX];                                                           \
  absolute(folder, from, path), absolute(other, to, target);                                       \
  STOP("rename", target);                                                                          \
  going(target);                                                                                   \
  return __VA_ARGS__;

int rename(const char *from, const char *to) {
  RENAMED(AT_FDCWD, from, AT_FDCWD, to, REAL(rename)(from, to))
}
int renameat(int folder, const char *from, int other, const char *to) {
  RENAMED(folder, from, other, to, REAL(renameat)(folder, from, other, to))
}

int link(const char *from, const char *to) {
  char path[PATH_MAX];
  absolute(AT_FDCWD, to, path);
  STOP("link", path);
  return REAL(link)(from, to);
}
int linkat(int folder, const char *from, int other, const char *to, int flags) {
  char path[PATH_MAX];
  absolute(other, to, path);
  STOP("link", path);
  return REAL(linkat)(folder, from, other, to, flags);
}

#define REMOVED(what, folder, given, ...)                                                          \
  char path[PATH_MAX];                                                                             \
  absolute(folder, given, path);                                                                   \
  STOP(what, path);                                                                                \
  going(path);                                                                                     \
  return __VA_ARGS__;

int unlink(const char *given) { REMOVED("unlink", AT_FDCWD, given, REAL(unlink)(given)) }
int unlinkat(int folder, const char *given, int flags) {
  REMOVED("unlink", folder, given, REAL(unlinkat)(folder, given, flags))
}
int rmdir(const char *given) { REMOVED("rmdir", AT_FDCWD, given, REAL(rmdir)(given)) }

int mkdir(const char *given, mode_t bits) {
  char path[PATH_MAX];
  absolute(AT_FDCWD, given, path);
  STOP("mkdir", path);
  return REAL(mkdir)(given, bits);
}
int mkdirat(int folder, const char *given, mode_t bits) {
  char path[PATH_MAX];
  absolute(folder, given, path);
  STOP("mkdir", path);
  return REAL(mkdirat)(folder, given, bits);
}
