// SPDX-License-Identifier: Apache-2.0
//
// What it is: mckv's Client as Python sees it: opening, putting, getting, asking, removing.
// Threads: any Python thread; close() too. A call keeps the client alive until it returns.
// Owns: a share of the Core. Trusts: of what Python passes only the addresses of the *_addresses
//   forms, which it cannot check.
#pragma once

#include "core.h"

namespace mckv {

class Client {
 public:
  Client(nb::handle agent, nb::handle name_space, nb::handle label, nb::handle timeout,
         std::uint64_t staging_bytes, std::uint32_t channel_count, nb::handle config);

  CorePtr core() const;  // raises ClosedError
  void close() { core_.reset(); }
  bool closed() const { return core_ == nullptr; }

 private:
  CorePtr core_;
};

void bind_client(nb::module_& module);
void bind_ranges(nb::module_& module);
void bind_addresses(nb::class_<Client>& client);
void bind_handle(nb::module_& module);
void bind_queue(nb::module_& module);

}  // namespace mckv
