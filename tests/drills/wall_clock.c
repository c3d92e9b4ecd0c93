// SPDX-License-Identifier: Apache-2.0
//
// Preloaded into an agent: its wall clock is WALL_CLOCK_AHEAD_S seconds ahead. The steady clock stays as it is, so
//   no wait changes. (libfaketime changes waits, too.)
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec* time) {
  const long result = syscall(SYS_clock_gettime, clock, time);
  const char* const ahead = getenv("WALL_CLOCK_AHEAD_S");
  if (result == 0 && clock == CLOCK_REALTIME && ahead != NULL) time->tv_sec += atol(ahead);
  return (int)result;
}

time_t time(time_t* seconds) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds != NULL) *seconds = now.tv_sec;
  return now.tv_sec;
}
