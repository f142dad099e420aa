#!/bin/sh
# The nightly report as a shell script: adds up the amounts that it reads, one a line.
# It takes no lock itself: the line in `crontab` runs it under one.
set -eu
echo running
awk '{ total += $1 } END { printf "report: %d sales, %d in total\n", NR, total }'
