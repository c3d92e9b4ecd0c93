// SPDX-License-Identifier: Apache-2.0
//
// A mutex, a lock and a condition that Clang's -Wthread-safety understands. The standard library's
// types carry no annotations, so Clang could not check them. Other compilers ignore the macros.
// Threads: any. Annotations: https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define MC_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define MC_THREAD_ANNOTATION(x)
#endif

// A field that may be read or written only while the mutex is held.
#define MC_GUARDED_BY(mutex) MC_THREAD_ANNOTATION(guarded_by(mutex))
// A pointer whose target may be used only while the mutex is held.
#define MC_PT_GUARDED_BY(mutex) MC_THREAD_ANNOTATION(pt_guarded_by(mutex))
// A function or lambda that the caller calls with the mutex held.
#define MC_REQUIRES(...) MC_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
// A function that locks the mutex itself: the caller must not hold the mutex.
#define MC_EXCLUDES(...) MC_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// A function whose body Clang does not check: Clang takes a mutex and a reference to the mutex for
// two.
#define MC_UNCHECKED MC_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace mc {

class MC_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() MC_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() MC_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  bool try_lock() MC_THREAD_ANNOTATION(try_acquire_capability(true)) { return mutex_.try_lock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

// Holds a mutex for a scope. unlock() and lock() interrupt the hold within the scope.
class MC_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) MC_THREAD_ANNOTATION(acquire_capability(mutex)) : lock_(mutex) {}
  ~MutexLock() MC_THREAD_ANNOTATION(release_capability()) = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  void unlock() MC_THREAD_ANNOTATION(release_capability()) { lock_.unlock(); }
  void lock() MC_THREAD_ANNOTATION(acquire_capability()) { lock_.lock(); }

 private:
  std::unique_lock<Mutex> lock_;
};

// A condition variable for one Mutex. A predicate that reads guarded fields is written as
// `[&]() MC_REQUIRES(mutex_) { return …; }`.
class Condition {
 public:
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

  void wait(Mutex& mutex) MC_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  template <typename Done>
  void wait(Mutex& mutex, Done done) MC_REQUIRES(mutex) MC_UNCHECKED {
    while (!done()) wait(mutex);
  }
  template <typename Clock, typename Span>
  std::cv_status wait_until(Mutex& mutex, std::chrono::time_point<Clock, Span> deadline)
      MC_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = condition_.wait_until(lock, deadline);
    lock.release();
    return status;
  }
  template <typename Rep, typename Period>
  std::cv_status wait_for(Mutex& mutex, std::chrono::duration<Rep, Period> span)
      MC_REQUIRES(mutex) {
    return wait_until(mutex, std::chrono::steady_clock::now() + span);
  }
  // True: done() held. False: the deadline passed first.
  template <typename Clock, typename Span, typename Done>
  bool wait_until(Mutex& mutex, std::chrono::time_point<Clock, Span> deadline, Done done)
      MC_REQUIRES(mutex) MC_UNCHECKED {
    while (!done()) {
      if (wait_until(mutex, deadline) == std::cv_status::timeout) return done();
    }
    return true;
  }
  template <typename Rep, typename Period, typename Done>
  bool wait_for(Mutex& mutex, std::chrono::duration<Rep, Period> span, Done done)
      MC_REQUIRES(mutex) {
    return wait_until(mutex, std::chrono::steady_clock::now() + span, done);
  }

 private:
  std::condition_variable condition_;
};

}  // namespace mc
