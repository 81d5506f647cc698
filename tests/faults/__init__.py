"""What is on disk, and what was said, after kills, disk faults and races of commands that pay."""
