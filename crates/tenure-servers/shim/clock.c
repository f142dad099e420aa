// A wall clock that steps: the system's time plus an offset in nanoseconds, which is read from a file.
// Loaded into a server with LD_PRELOAD, it moves the time of day for that process only. Monotonic time is not moved:
// setting a clock does not change it, and timers that run backward would cause faults that never happen in reality.

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

// Does not use malloc, which may itself ask for the time.
__attribute__((constructor)) static void open_offset(void) {
    const char *path = getenv("TENURE_CLOCK_OFFSET");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) offset = page;
    close(file);
}

static int is_moved(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

static void move(struct timespec *time, int64_t by) {
    int64_t moved = (int64_t)time->tv_sec * 1000000000 + time->tv_nsec + by;
    time->tv_sec = moved / 1000000000;
    time->tv_nsec = moved % 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && offset && is_moved(clock)) move(time, *offset);
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}

// The deadline is a time of this clock, and the system compares it with its own. With a clock behind the system's, each wait of MariaDB
// would end at once, and InnoDB, which counts waits of a second, aborts after 600.
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    struct timespec moved = *until;
    if (offset) move(&moved, -*offset);
    return pthread_cond_clockwait(condition, mutex, CLOCK_REALTIME, &moved);
}
