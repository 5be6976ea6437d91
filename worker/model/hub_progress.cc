#include "worker/model/hub_progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "worker/model/memory_report.h"

namespace penstock {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(200);
constexpr int64_t kQuietBelow = 1'000'000;  // small files are not worth a line

int64_t Percent(int64_t part, int64_t whole) { return whole <= 0 ? 100 : part * 100 / whole; }

}  // namespace

HubProgress::HubProgress(bool terminal, int64_t total_bytes,
                         std::function<void(std::string_view)> write)
    : terminal_(terminal),
      total_(total_bytes),
      write_(std::move(write)),
      begin_(std::chrono::steady_clock::now()),
      shown_(begin_ - kRedraw) {}

void HubProgress::StartFile(std::string name, int64_t size, int64_t have) {
  name_ = std::move(name);
  file_size_ = size;
  file_done_ = have;
  done_ += have;
  next_line_ = terminal_ ? 0 : Percent(have, size) / 10 * 10 + 10;
  if (terminal_) {
    Show(false);
  } else if (size >= kQuietBelow) {
    write_(absl::StrFormat("downloading %s (%s%s)\n", name_, BytesText(size),
                           have > 0 ? ", resuming at " + BytesText(have) : ""));
  }
}

void HubProgress::Advance(int64_t bytes) {
  file_done_ += bytes;
  done_ += bytes;
  received_ += bytes;
  if (terminal_) {
    if (std::chrono::steady_clock::now() - shown_ >= kRedraw) Show(false);
    return;
  }
  if (file_size_ < kQuietBelow || Percent(file_done_, file_size_) < next_line_) return;
  Show(false);
  next_line_ = Percent(file_done_, file_size_) / 10 * 10 + 10;
}

void HubProgress::RestartFile() {
  done_ -= file_done_;
  file_done_ = 0;
  next_line_ = 10;
}

void HubProgress::FinishFile() {
  if (terminal_) Show(done_ >= total_);
}

void HubProgress::Show(bool last) {
  shown_ = std::chrono::steady_clock::now();
  const double seconds = std::max(std::chrono::duration<double>(shown_ - begin_).count(), 1e-3);
  const double rate = static_cast<double>(received_) / seconds;
  std::string left;
  if (rate > 0 && total_ > done_) {
    const auto wait = static_cast<int64_t>(static_cast<double>(total_ - done_) / rate);
    left = absl::StrFormat(", %d:%02d left", wait / 60, wait % 60);
  }
  const std::string text = absl::StrFormat(
      "%s: %d%% (%s of %s, %s/s%s)", name_, Percent(done_, total_), BytesText(done_),
      BytesText(total_), BytesText(static_cast<int64_t>(rate)), left);
  if (terminal_) {
    write_(absl::StrFormat("\r\033[K%s%s", text, last ? "\n" : ""));
  } else {
    write_(text + "\n");
  }
}

}  // namespace penstock
