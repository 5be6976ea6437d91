#include "common/text/jinja/runtime.h"

#include <cstdlib>
#include <utility>

#include "common/text/jinja/errors.h"

namespace penstock::jinja {
namespace {
constexpr std::ptrdiff_t kMaxStackBytes = std::ptrdiff_t{3} << 20;  // of a thread's usual 8 MiB
constexpr size_t kMaxChargedOverOutput = 16;  // all text made, as a multiple of the output's limit
constexpr int64_t kStepsPerClockRead = 1024;
}  // namespace

// The frame's address, not a local's: sanitizers keep locals elsewhere.
const char* StackPosition() { return static_cast<const char*>(__builtin_frame_address(0)); }

Runtime::Runtime(const RenderOptions& options)
    : options_(options), deadline_(std::chrono::steady_clock::now() + options.limits.max_time) {}

Runtime::~Runtime() {
  // Closures, namespaces and loops may refer to each other in circles.
  for (const auto& space : namespaces_) space->attributes.Clear();
  for (const auto& activation : kept_) activation->slots.clear();
}

absl::Status Runtime::Tick() {
  if (++steps_ > options_.limits.max_steps) {
    return LimitError("the template does more than %d steps", options_.limits.max_steps);
  }
  if (steps_ % kStepsPerClockRead == 0 && std::chrono::steady_clock::now() > deadline_) {
    return LimitError("the template runs longer than %d ms", options_.limits.max_time.count());
  }
  return absl::OkStatus();
}

absl::Status Runtime::CheckSize(double bytes) const {
  if (bytes <= static_cast<double>(max_bytes())) return absl::OkStatus();
  return LimitError("the template makes a text of more than %d bytes", max_bytes());
}

absl::Status Runtime::Charge(size_t bytes) {
  RETURN_IF_ERROR(CheckSize(static_cast<double>(bytes)));
  charged_ += bytes;
  if (charged_ / kMaxChargedOverOutput > max_bytes()) {
    return LimitError("the template makes too much text");
  }
  return Tick();
}

absl::StatusOr<Value> Runtime::NewString(Text text) {
  RETURN_IF_ERROR(Charge(text.bytes.size()));
  return Value::String(std::move(text));
}

void Runtime::Keep(const std::shared_ptr<Activation>& activation) {
  if (std::exchange(activation->kept, true)) return;
  charged_ += sizeof(Activation) + activation->slots.size() * sizeof(Value);
  kept_.push_back(activation);
}

std::shared_ptr<NamespaceObject> Runtime::NewNamespace() {
  charged_ += sizeof(NamespaceObject);
  namespaces_.push_back(std::make_shared<NamespaceObject>());
  return namespaces_.back();
}

absl::Status Runtime::CheckStack() const {
  const std::ptrdiff_t used = stack_base - StackPosition();
  if (std::abs(used) <= kMaxStackBytes) return absl::OkStatus();
  return LimitError("the template is nested too deeply");
}

std::tm Runtime::LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

}  // namespace penstock::jinja
