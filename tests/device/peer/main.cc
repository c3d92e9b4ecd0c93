// SPDX-License-Identifier: Apache-2.0
//
// Another process that uses the device, as an engine does. Reads commands, one per line:
//
//   alloc BYTES                answers with an address
//   free ADDRESS
//   fill ADDRESS BYTES VALUE   each byte gets the value
//   paint ADDRESS BYTES SEED   each byte depends on the seed and on the byte's place
//   check ADDRESS BYTES SEED   answers with the place of the first byte that differs
//   byte ADDRESS               answers with a byte
//   hold                       the stream waits for "finish"
//   repaint ADDRESS BYTES SEED as paint, in the order of the stream
//   sync                       waits for the stream
//   capture ON                 1: the stream is being captured
//   chunks COUNT               maps chunks of 2 MiB; answers with an address
//   export NUMBER              answers with a descriptor of this chunk
//   share ADDRESS              answers with a handle in hexadecimal
//   open HANDLE                answers with an address
//   close ADDRESS
//   event                      makes an event; answers with the handle
//   record                     the event is complete after "finish"
//   finish
//   charged                    answers with the bytes that the driver charges to this process
//   connect SOCKET [NAMESPACE] opens a client
//   register ADDRESS BYTES
//   unregister ADDRESS
//   put KEY ADDRESS BYTES
//   put_by_threads KEY ADDRESS BYTES   KEY0 to KEY7
//   get KEY ADDRESS BYTES
//   gets NAME COUNT ADDRESS BYTES      objects NAME0 and so on; after a failure the status of each
//   gets_in_order ...                  the same, in the order of the stream
//   puts NAME COUNT ADDRESS BYTES      the same for puts
//   puts_in_order ...                  in the order of the stream
//   puts_briefly ...                   the same, with a deadline of 50 ms
//   puts_later ...                     the same as puts_in_order, and the call does not wait
//   await MILLISECONDS         waits for the completion of puts_later; answers with its status
//   remove KEY
//   reserve NAME BYTES
//   write NAME OFFSET ADDRESS BYTES    in the order of the stream
//   commit NAME BYTES
//   abandon NAME
//   view NAME
//   read NAME OFFSET ADDRESS BYTES     in the order of the stream
//   release NAME
//   leave                      closes the client
//
// Other answers are "ok", or "error N" with the driver's error.
#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "device/driver_library.h"
#include "device/peer/pool_user.h"

namespace {

using mc::device::testing::fake;

std::string hexadecimal(const CUipcHandle& handle) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : handle.bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

CUipcHandle handle_of(const std::string& text) {
  CUipcHandle handle{};
  for (std::size_t i = 0; i < sizeof handle.bytes && 2 * i + 1 < text.size(); ++i) {
    handle.bytes[i] =
        static_cast<unsigned char>(std::strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  return handle;
}

std::string result(int error, const std::string& answer = "ok") {
  return error == 0 ? answer : "error " + std::to_string(error);
}

class Peer {
 public:
  Peer() {
    void* context = nullptr;
    if (CU(cuInit)(0) != 0 || CU(cuDevicePrimaryCtxRetain)(&context, 0) != 0 ||
        CU(cuCtxPushCurrent_v2)(context) != 0 || CU(cuStreamCreate)(&stream_, 1) != 0) {
      std::abort();
    }
    pool_ = std::make_unique<mc::device::testing::PoolUser>(stream_);
  }

  std::string answer(const std::string& line) {
    if (const auto answer = pool_->answer(line)) return *answer;
    std::istringstream words(line);
    std::string command;
    std::string first;
    words >> command >> first;
    const std::uint64_t number = std::strtoull(first.c_str(), nullptr, 0);
    CUdeviceptr address = 0;
    CUipcHandle handle{};
    if (command == "alloc") {
      const int error = CU(cuMemAlloc_v2)(&address, number);
      return result(error, std::to_string(address));
    }
    if (command == "free") return result(CU(cuMemFree_v2)(number));
    if (command == "chunks") {
      const int error = make_chunks(number, &address);
      return result(error, std::to_string(address));
    }
    if (command == "export") {
      int descriptor = -1;
      const int error = CU(cuMemExportToShareableHandle)(&descriptor, chunks_.at(number),
                                                         mc::fake::kPosixHandle, 0);
      return result(error, std::to_string(descriptor));
    }
    if (command == "share") {
      const int error = CU(cuIpcGetMemHandle)(&handle, number);
      return result(error, hexadecimal(handle));
    }
    if (command == "open") {
      const int error = CU(cuIpcOpenMemHandle_v2)(&address, handle_of(first), 1);
      return result(error, std::to_string(address));
    }
    if (command == "close") return result(CU(cuIpcCloseMemHandle)(number));
    if (command == "charged") return std::to_string(fake().charged());
    if (command == "event") {
      int error = CU(cuEventCreate)(&event_, 6);
      if (error == 0) error = CU(cuIpcGetEventHandle)(&handle, event_);
      return result(error, hexadecimal(handle));
    }
    if (command == "record") {
      const int error = hold();
      return result(error != 0 ? error : CU(cuEventRecord)(event_, stream_));
    }
    if (command == "hold") return result(hold());
    if (command == "sync") return result(CU(cuStreamSynchronize)(stream_));
    if (command == "capture") {
      fake().capture(stream_, number != 0);
      return "ok";
    }
    if (command == "finish") {
      busy_ = false;
      return "ok";
    }
    return fill_or_read(command, number, words);
  }

 private:
  std::string fill_or_read(const std::string& command, std::uint64_t address,
                           std::istringstream& words) {
    if (command == "byte") {
      unsigned char byte = 0;
      const int error = CU(cuMemcpyDtoH_v2)(&byte, address, 1);
      return result(error, std::to_string(byte));
    }
    std::size_t bytes = 0;
    std::size_t value = 0;
    words >> bytes >> value;
    std::vector<char> source(bytes, static_cast<char>(value));
    if (command != "fill") {
      for (std::size_t i = 0; i < bytes; ++i) source[i] = static_cast<char>(value + i + i / 251);
    }
    if (command == "check") return check(address, source);
    if (command == "repaint") {
      // The driver has read pageable memory when the call returns.
      return result(CU(cuMemcpyHtoDAsync_v2)(address, source.data(), bytes, stream_));
    }
    int error = CU(cuMemcpyHtoD_v2)(address, source.data(), bytes);
    if (error == 0) error = CU(cuStreamSynchronize)(nullptr);
    return result(error);
  }

  static std::string check(std::uint64_t address, const std::vector<char>& wanted) {
    std::vector<char> found(wanted.size());
    const int error = CU(cuMemcpyDtoH_v2)(found.data(), address, found.size());
    const auto differs = std::mismatch(found.begin(), found.end(), wanted.begin()).first;
    return result(error, differs == found.end() ? "ok" : std::to_string(differs - found.begin()));
  }

  int make_chunks(std::size_t count, CUdeviceptr* address) {
    constexpr std::size_t kBytes = 2 << 20;
    CUmemAllocationProp prop{};
    prop.type = 1;
    prop.requestedHandleTypes = mc::fake::kPosixHandle;
    prop.location = {1, 0};
    const CUmemAccessDesc access{{1, 0}, 3};
    int error = CU(cuMemAddressReserve)(address, count * kBytes, 0, 0, 0);
    for (std::size_t i = 0; i < count && error == 0; ++i) {
      error = CU(cuMemCreate)(&chunks_.emplace_back(), kBytes, &prop, 0);
      if (error == 0) error = CU(cuMemMap)(*address + i * kBytes, kBytes, 0, chunks_.back(), 0);
    }
    if (error == 0) error = CU(cuMemSetAccess)(*address, count * kBytes, &access, 1);
    return error;
  }

  // The stream goes on after "finish".
  int hold() {
    busy_ = true;
    const auto wait = [](void* busy) {
      while (*static_cast<volatile bool*>(busy)) {
      }
    };
    return CU(cuLaunchHostFunc)(stream_, wait, &busy_);
  }

  CUstream stream_ = nullptr;
  std::vector<CUphysical> chunks_;
  CUevent event_ = nullptr;
  bool busy_ = false;
  std::unique_ptr<mc::device::testing::PoolUser> pool_;
};

}  // namespace

int main() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Peer peer;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << peer.answer(line) << std::endl;
  }
  return 0;
}
