#pragma once

// What a user sees of a download: one line that is rewritten on a terminal, a plain line every ten
// percent elsewhere. One thread.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace penstock {

class HubProgress {
 public:
  // write gets text for a terminal (with \r) or whole lines with \n.
  HubProgress(bool terminal, int64_t total_bytes, std::function<void(std::string_view)> write);

  // have: bytes that are there already (resumed or cached).
  void StartFile(std::string name, int64_t size, int64_t have);
  void Advance(int64_t bytes);
  // The file begins again, from nothing.
  void RestartFile();
  void FinishFile();

 private:
  void Show(bool last);

  const bool terminal_;
  const int64_t total_;
  const std::function<void(std::string_view)> write_;
  const std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point shown_;
  std::string name_;
  int64_t file_size_ = 0;
  int64_t file_done_ = 0;
  int64_t done_ = 0;      // of all files
  int64_t received_ = 0;  // over the network
  int64_t next_line_ = 0;
};

}  // namespace penstock
