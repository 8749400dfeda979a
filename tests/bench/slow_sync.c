// A disk that takes longer to sync: preloaded before the C library, each fsync() and fdatasync()
// sleeps for SYNCD_BENCH_SYNC_US microseconds before it does its work. For bench_durable --sync-us.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int slowly(const char* name, int file) {
  const char* text = getenv("SYNCD_BENCH_SYNC_US");
  const long us = text != NULL ? atol(text) : 0;
  struct timespec left = {us / 1000000, us % 1000000 * 1000};
  while (nanosleep(&left, &left) != 0) {
  }
  int (*sync_file)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  return sync_file(file);
}

int fsync(int file) {
  return slowly("fsync", file);
}
int fdatasync(int file) {
  return slowly("fdatasync", file);
}
