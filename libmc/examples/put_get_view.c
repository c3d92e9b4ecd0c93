/* SPDX-License-Identifier: Apache-2.0 */
/* Puts an object, copies it, and reads it in place. Needs an agent: mc-agent --pool-bytes 1GiB */
#include <stdio.h>
#include <string.h>

#include "mc/mc.h"

static int failed(const char* call) {
  fprintf(stderr, "%s: %s\n", call, mc_last_error());
  return 1;
}

int main(void) {
  static char block[1 << 20];
  static char copy[sizeof block];
  const mc_slice key = {"example/block", strlen("example/block")};
  const mc_slice value = {block, sizeof block};
  memset(block, 'k', sizeof block);

  /* Null options: the agent of this host, its default namespace, a deadline of a few seconds. */
  mc_client* client;
  if (mc_open(NULL, &client) != MC_OK) return failed("mc_open");

  /* One copy into the pool. Every client of the host finds the object when the call returns. */
  if (mc_put(client, key, value, NULL) != MC_OK) return failed("mc_put");

  /* A get copies the object to where the caller wants the bytes. */
  size_t length = 0;
  if (mc_get(client, key, copy, sizeof copy, &length) != MC_OK) return failed("mc_get");
  printf("copied %zu bytes, equal: %s\n", length,
         memcmp(block, copy, sizeof block) == 0 ? "yes" : "no");

  /* A view copies nothing. The agent keeps the bytes until the view is released. */
  mc_view view;
  if (mc_get_view(client, key, &view) != MC_OK) return failed("mc_get_view");
  printf("view of %zu bytes at %s address, checksum: %s\n", view.size,
         view.data == block ? "the caller's" : "the pool's",
         mc_status_name(mc_view_verify(&view, key)));
  mc_view_release(&view);

  /* A miss is a status, not a failure of the call. */
  if (mc_remove(client, key, 0) != MC_OK) return failed("mc_remove");
  printf("after the removal: %s\n", mc_status_name(mc_exists(client, key)));
  mc_close(client);
  return 0;
}
