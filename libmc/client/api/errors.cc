// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/api/errors.h"

#include <string>

namespace mc::client {

namespace {
__attribute__((tls_model("initial-exec"))) thread_local mc_status last_code = MC_OK;
__attribute__((tls_model("initial-exec"))) thread_local bool has_text = false;
thread_local std::string last_text;
}  // namespace

mc_status set_error(const Status& status) {
  last_code = status.code();
  has_text = true;
  last_text = status.text();
  return status.code();
}

mc_status set_error(mc_status code) {
  last_code = code;
  has_text = false;
  return code;
}

}  // namespace mc::client

extern "C" const char* mc_last_error(void) {
  using namespace mc::client;
  if (has_text) return last_text.c_str();
  return last_code == MC_OK ? "" : mc_status_text(last_code);
}
