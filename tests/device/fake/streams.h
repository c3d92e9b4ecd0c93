// SPDX-License-Identifier: Apache-2.0
//
// Streams and events. Each stream is a thread that is late on purpose, so that a caller who does not
//   wait sees old bytes. A stream that waits for a dead process waits until the process of the stream ends.
// Threads: any.
// Owns: the threads, which end with their streams.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "device/fake/machine.h"

namespace mc::fake {

class Stream {
 public:
  using Work = std::function<void()>;
  // The works that a stream had at some time.
  struct Mark {
    std::shared_ptr<Stream> stream;
    std::uint64_t number = 0;
  };

  Stream(int device, unsigned flags);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  // The work begins after the marks.
  void submit(Work work, std::vector<Mark> after);
  std::uint64_t submitted() const;
  bool has_ended(std::uint64_t number) const;
  void wait_for(std::uint64_t number) const;

  int device() const { return device_; }
  bool is_blocking() const { return (flags_ & kStreamNonBlocking) == 0; }
  void set_capturing(bool on) { capturing_ = on; }
  bool is_capturing() const { return capturing_; }

 private:
  struct Item {
    Work work;
    std::vector<Mark> after;
  };
  void run();

  const int device_;
  const unsigned flags_;
  std::atomic<bool> capturing_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<Item> items_;
  std::uint64_t submitted_ = 0;
  std::uint64_t ended_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

// All streams of the process. A null handle means the default stream of the current device. The default
// stream and the blocking streams wait for each other.
class Streams {
 public:
  static Streams& get();

  CUstream make(int device, unsigned flags);
  // Aborts if the handle is unknown.
  std::shared_ptr<Stream> find(const char* call, CUstream handle);
  void destroy(const char* call, CUstream handle);
  void submit(const std::shared_ptr<Stream>& stream, Stream::Work work);
  // Waits for all streams of the device, as calls do that free or unmap memory.
  void drain(int device);
  std::size_t count();

 private:
  std::shared_ptr<Stream> default_of(int device);

  std::mutex mutex_;
  std::set<std::shared_ptr<Stream>> streams_;
  std::array<std::shared_ptr<Stream>, kDevices> defaults_;
};

// Events lie in the machine's tables, so that a process can wait for events of another process.
class Events {
 public:
  static Events& get();

  int make(CUevent* event, unsigned flags);
  void destroy(const char* call, CUevent event);
  void record(const char* call, CUevent event, const std::shared_ptr<Stream>& stream);
  bool is_complete(const char* call, CUevent event);
  void wait(const char* call, CUevent event);
  void make_wait(const char* call, CUevent event, const std::shared_ptr<Stream>& stream);
  int share(const char* call, CUevent event, CUipcHandle* handle);
  int open(CUevent* event, const CUipcHandle& handle);
  std::size_t count();

 private:
  struct Handle {
    int place = -1;
    bool imported = false;
  };
  SharedEvent& find(const char* call, CUevent event, Handle* found = nullptr);

  std::mutex mutex_;
  std::set<Handle*> handles_;
};

}  // namespace mc::fake
