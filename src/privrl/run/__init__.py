"""Running estimators: on files of any size, in this process or over a cluster."""
