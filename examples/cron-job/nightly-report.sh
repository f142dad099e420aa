#!/bin/sh
# The nightly report as a shell script: adds up the amounts that it reads, one per line. The line in the file `crontab`
# runs this script under the lock.
set -eu
echo running
awk '{ total += $1 } END { printf "report: %d sales, %d in total\n", NR, total }'
