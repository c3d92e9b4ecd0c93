// SPDX-License-Identifier: Apache-2.0
//
// The Python class Client: open, put, get, query, remove.
// Threads: any Python thread, also for close(). A call keeps the client alive until the call
// returns.
// Owns: a reference to the Core.
// Trusts: Python's arguments are checked, except the addresses of the *_addresses methods.
#pragma once

#include "core.h"

namespace mckv {

class Client {
 public:
  Client(nb::handle agent, nb::handle name_space, nb::handle label, nb::handle timeout,
         std::uint64_t staging_bytes, std::uint32_t channel_count, nb::handle config, int verify);

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
