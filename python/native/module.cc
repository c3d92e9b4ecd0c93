// SPDX-License-Identifier: Apache-2.0
//
// The extension module mckv._native.
#include "client.h"
#include "view.h"
#include "writing.h"

NB_MODULE(_native, module) {
  // A view may outlive the interpreter, so leak warnings would be wrong.
  nb::set_leak_warnings(false);
  module.doc() = "libmc for Python; use it through mckv.";
  module.attr("VERSION") = mc_version();
  module.def("on_interpreter_exit", &mckv::on_interpreter_exit);
  module.def(
      "status_name", [](int status) { return mc_status_name(static_cast<mc_status>(status)); },
      nb::arg("status"), "\"MC_NOT_FOUND\"; for a number that is no status, \"MC_INTERNAL\".");
  module.def(
      "status_text", [](int status) { return mc_status_text(static_cast<mc_status>(status)); },
      nb::arg("status"), "One sentence.");
  module.def(
      "status_retry",
      [](int status) { return static_cast<int>(mc_status_retry(static_cast<mc_status>(status))); },
      nb::arg("status"), "0 never, 1 later, 2 with a new client.");
  mckv::bind_ranges(module);
  mckv::bind_handle(module);
  mckv::bind_view(module);
  mckv::bind_writing(module);
  mckv::bind_client(module);
  mckv::bind_queue(module);
}
