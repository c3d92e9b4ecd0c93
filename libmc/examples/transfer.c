/* SPDX-License-Identifier: Apache-2.0 */
/* One process registers memory; another one reads and writes that memory. Needs no agent. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mc/transfer.h"

enum { kBytes = 1 << 20 };

struct offer { /* what the owner tells the other process, here through a pipe */
  char name[256];
  uint64_t address;
};

static int failed(const char* call) {
  fprintf(stderr, "%s: %s\n", call, mc_transfer_last_error());
  return 1;
}

/* The owner registers memory and does nothing more: transfers are one-sided. */
static int own(int tell, int wait) {
  mc_transfer_engine* engine;
  if (mc_transfer_open(NULL, &engine) != MC_OK) return failed("mc_transfer_open");
  void* memory;
  if (mc_transfer_allocate(kBytes, &memory) != MC_OK) return failed("mc_transfer_allocate");
  memset(memory, 'a', kBytes);
  const mc_transfer_range range = {memory, kBytes};
  if (mc_transfer_register(engine, &range, 1, MC_TRANSFER_READ | MC_TRANSFER_WRITE) != MC_OK) {
    return failed("mc_transfer_register");
  }
  mc_transfer_info info = {.struct_size = sizeof info};
  if (mc_transfer_get_info(engine, &info) != MC_OK) return failed("mc_transfer_get_info");
  struct offer offer = {.address = (uint64_t)(uintptr_t)memory};
  snprintf(offer.name, sizeof offer.name, "%s", info.name);
  if (write(tell, &offer, sizeof offer) != sizeof offer) return 1;

  char end;
  if (read(wait, &end, 1) != 0) return 1; /* until the other process closes its end */
  printf("owner: the second half begins with '%c'\n", ((char*)memory)[kBytes / 2]);
  mc_transfer_close(engine);
  return ((char*)memory)[kBytes / 2] == 'b' ? 0 : 1;
}

static int use(int told) {
  struct offer offer;
  if (read(told, &offer, sizeof offer) != sizeof offer) return 1;
  static char local[kBytes];
  memset(local + kBytes / 2, 'b', kBytes / 2);
  mc_transfer_engine* engine;
  mc_transfer_segment segment;
  if (mc_transfer_open(NULL, &engine) != MC_OK) return failed("mc_transfer_open");
  if (mc_transfer_open_segment(engine, offer.name, 0, &segment) != MC_OK) {
    return failed("mc_transfer_open_segment");
  }
  /* One batch: read the first half, write the second half. */
  const mc_transfer_request requests[] = {
      {MC_TRANSFER_GET, 0, local, segment, offer.address, kBytes / 2},
      {MC_TRANSFER_PUT, 0, local + kBytes / 2, segment, offer.address + kBytes / 2, kBytes / 2}};
  if (mc_transfer_run(engine, requests, 2, NULL) != MC_OK) return failed("mc_transfer_run");
  printf("user: read '%c', wrote '%c'\n", local[0], local[kBytes / 2]);
  fflush(stdout);
  mc_transfer_close(engine);
  return local[0] == 'a' ? 0 : 1;
}

int main(void) {
  int offer[2];
  int end[2];
  if (pipe(offer) != 0 || pipe(end) != 0) return 1;
  const pid_t owner = fork(); /* before any engine is open: engines do not survive fork() */
  if (owner == 0) {
    close(end[1]);
    return own(offer[1], end[0]);
  }
  close(offer[1]);
  const int result = use(offer[0]);
  close(end[1]);
  int status = 1;
  waitpid(owner, &status, 0);
  return result != 0 || status != 0;
}
