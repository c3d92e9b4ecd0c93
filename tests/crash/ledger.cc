// SPDX-License-Identifier: Apache-2.0
#include "crash/ledger.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libmc/base/fd.h"

namespace mc::crash {

Ledger* open_ledger(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file || ::ftruncate(file.get(), sizeof(Ledger)) != 0) return nullptr;
  void* at = ::mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  return at == MAP_FAILED ? nullptr : static_cast<Ledger*>(at);
}

}  // namespace mc::crash
