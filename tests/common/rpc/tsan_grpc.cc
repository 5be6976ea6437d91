// What the thread sanitizer has to know of gRPC, which comes from a package built without it.
//
// gRPC hands our reactors and messages from thread to thread under absl::Mutex, whose atomics the
// sanitizer does not see: every callback would be reported. The functions below take the place of
// the library's (a program's symbols go before those of its libraries), call it, and tell of the
// order that it makes. One sync object stands for all of gRPC, since its lock-free queues hand
// things over as well: two accesses ordered by nothing but a chance pass through gRPC are missed,
// races between our own threads are not.

#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpc/support/time.h>
#include <sanitizer/tsan_interface.h>

#include <atomic>

#include "absl/synchronization/mutex.h"

namespace {

char grpc_order;  // its address is the sync object

// The library's own function behind one of ours.
template <typename Function>
class Next {
 public:
  explicit constexpr Next(const char* mangled) : mangled_(mangled) {}
  template <typename... Args>
  auto operator()(Args... args) {
    void* found = found_.load(std::memory_order_acquire);
    if (found == nullptr) {
      found = dlsym(RTLD_NEXT, mangled_);
      found_.store(found, std::memory_order_release);
    }
    return reinterpret_cast<Function*>(found)(args...);
  }

 private:
  const char* mangled_;
  std::atomic<void*> found_ = nullptr;
};

#define PENSTOCK_STRING_OF(x) #x
#define PENSTOCK_STRING(x) PENSTOCK_STRING_OF(x)
#define ABSL_SPACE PENSTOCK_STRING(ABSL_OPTION_INLINE_NAMESPACE_NAME)
static_assert(sizeof(ABSL_SPACE) == 8, "the length is part of the mangled names below");
#define ABSL_MANGLED(rest) "_ZN4absl7" ABSL_SPACE rest

using absl::Mutex;
constinit Next<void(Mutex*)> next_lock(ABSL_MANGLED("5Mutex4LockEv"));
constinit Next<void(Mutex*)> next_unlock(ABSL_MANGLED("5Mutex6UnlockEv"));
constinit Next<bool(Mutex*)> next_try_lock(ABSL_MANGLED("5Mutex7TryLockEv"));
constinit Next<void(absl::CondVar*, Mutex*)> next_wait(ABSL_MANGLED("7CondVar4WaitEPNS0_5MutexE"));
constinit Next<bool(absl::CondVar*, Mutex*, absl::Duration)> next_wait_timeout(
    ABSL_MANGLED("7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE"));
constinit Next<bool(absl::CondVar*, Mutex*, absl::Time)> next_wait_deadline(
    ABSL_MANGLED("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE"));
constinit Next<grpc_call_error(grpc_call*, const grpc_op*, size_t, void*, void*)> next_start_batch(
    "grpc_call_start_batch");
constinit Next<grpc_event(grpc_completion_queue*, gpr_timespec, void*)> next_event(
    "grpc_completion_queue_next");

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  next_lock(this);
  __tsan_acquire(&grpc_order);
}

void Mutex::Unlock() {
  __tsan_release(&grpc_order);
  next_unlock(this);
}

bool Mutex::TryLock() {
  const bool locked = next_try_lock(this);
  if (locked) __tsan_acquire(&grpc_order);
  return locked;
}

void CondVar::Wait(Mutex* mutex) {
  __tsan_release(&grpc_order);
  next_wait(this, mutex);
  __tsan_acquire(&grpc_order);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  __tsan_release(&grpc_order);
  const bool timed_out = next_wait_timeout(this, mutex, timeout);
  __tsan_acquire(&grpc_order);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  __tsan_release(&grpc_order);
  const bool timed_out = next_wait_deadline(this, mutex, deadline);
  __tsan_acquire(&grpc_order);
  return timed_out;
}

ABSL_NAMESPACE_END
}  // namespace absl

extern "C" grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count,
                                                 void* tag, void* reserved) {
  __tsan_release(&grpc_order);
  return next_start_batch(call, ops, count, tag, reserved);
}

// Where gRPC's threads get the callbacks that they are to run.
extern "C" grpc_event grpc_completion_queue_next(grpc_completion_queue* queue,
                                                 gpr_timespec deadline, void* reserved) {
  const grpc_event event = next_event(queue, deadline, reserved);
  __tsan_acquire(&grpc_order);
  return event;
}

// Code of packages is not instrumented and its accesses mean nothing. What is left are gRPC's own
// call objects, whose last owner it counts out inside the library.
extern "C" const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }
extern "C" const char* __tsan_default_suppressions() {
  return "race:~CallbackWithSuccessTag\nrace:~CallOpSet\nrace:~InterceptorBatchMethodsImpl\n";
}
