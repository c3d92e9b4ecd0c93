// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/api/errors.h"

#include <string>

#include "libmc/base/exception.h"

namespace mc::client {

namespace {
__attribute__((tls_model("initial-exec"))) thread_local mc_status last_code = MC_OK;
// Null: the sentence of the code.
__attribute__((tls_model("initial-exec"))) thread_local const char* last_text = nullptr;
thread_local std::string own_text;
}  // namespace

mc_status set_error(const Status& status) {
  own_text = status.text();
  last_code = status.code();
  last_text = own_text.c_str();
  return status.code();
}

mc_status set_error(mc_status code) noexcept {
  last_code = code;
  last_text = nullptr;
  return code;
}

mc_status caught() noexcept {
  const Caught error = caught_exception();
  last_code = error.code;
  last_text = error.text;
  return error.code;
}

}  // namespace mc::client

extern "C" const char* mc_last_error(void) noexcept {
  using namespace mc::client;
  if (last_text != nullptr) return last_text;
  return last_code == MC_OK ? "" : mc_status_text(last_code);
}
