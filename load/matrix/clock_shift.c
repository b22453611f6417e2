/* A wall clock that is wrong, for one process: LD_PRELOAD of this library, and CLOCK_SHIFT_S seconds in its environment.

   Whoever asks for the time gets a shifted one, in Python, C and librdkafka alike. The monotonic clock is right. Who
   waits until a time of the shifted clock waits until it is that late by the shifted clock. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>

static time_t shift_s;
static int (*its_clock_gettime)(clockid_t, struct timespec *);
static int (*its_cnd_timedwait)(cnd_t *, mtx_t *, const struct timespec *);
static int (*its_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*its_sem_timedwait)(sem_t *, const struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *asked = getenv("CLOCK_SHIFT_S");
    its_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    its_cnd_timedwait = dlsym(RTLD_NEXT, "cnd_timedwait");
    its_cond_timedwait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2"); /* on x86_64 there is an older one */
    if (!its_cond_timedwait) its_cond_timedwait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    its_sem_timedwait = dlsym(RTLD_NEXT, "sem_timedwait");
    shift_s = asked ? atol(asked) : 0;
}

static int now(clockid_t clock, struct timespec *time) {
    if (!its_clock_gettime) begin(); /* somebody asks before our turn */
    return its_clock_gettime(clock, time);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int code = now(clock, time);
    if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += shift_s;
    return code;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec read;
    int code = clock_gettime(CLOCK_REALTIME, &read);
    (void)zone;
    if (code == 0) *time = (struct timeval){read.tv_sec, read.tv_nsec / 1000};
    return code;
}

time_t time(time_t *where) {
    struct timespec read;
    clock_gettime(CLOCK_REALTIME, &read);
    if (where) *where = read.tv_sec;
    return read.tv_sec;
}

int timespec_get(struct timespec *time, int base) {
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, time) == 0 ? base : 0;
}

/* Return a time as the kernel has it. What is far from now by the wall clock is a time of the monotonic one. */
static struct timespec true_time(const struct timespec *until) {
    struct timespec read, found = *until;
    now(CLOCK_REALTIME, &read);
    if (until->tv_sec > read.tv_sec / 2) found.tv_sec -= shift_s;
    return found;
}

int cnd_timedwait(cnd_t *restrict it, mtx_t *restrict mutex, const struct timespec *restrict until) {
    struct timespec its = true_time(until);
    return its_cnd_timedwait(it, mutex, &its);
}

int pthread_cond_timedwait(pthread_cond_t *restrict it, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    struct timespec its = true_time(until);
    return its_cond_timedwait(it, mutex, &its);
}

int sem_timedwait(sem_t *restrict it, const struct timespec *restrict until) {
    struct timespec its = true_time(until);
    return its_sem_timedwait(it, &its);
}
