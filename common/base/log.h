#pragma once

// One structured line per event: "time level component message key=value ...", to stderr.
// Thread-safe. Prompts and generated text are never logged.

#include <string>
#include <string_view>

#include "absl/strings/str_format.h"

namespace penstock {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// component is shown on every line ("router", "worker:0", "penstock"); level is the lowest shown.
void InitLog(std::string_view component, LogLevel level = LogLevel::kInfo);
void LogLine(LogLevel level, std::string_view message);
bool LogEnabled(LogLevel level);

template <typename... Args>
void LogDebug(const absl::FormatSpec<Args...>& format, const Args&... args) {
  if (LogEnabled(LogLevel::kDebug)) LogLine(LogLevel::kDebug, absl::StrFormat(format, args...));
}
template <typename... Args>
void LogInfo(const absl::FormatSpec<Args...>& format, const Args&... args) {
  LogLine(LogLevel::kInfo, absl::StrFormat(format, args...));
}
template <typename... Args>
void LogWarning(const absl::FormatSpec<Args...>& format, const Args&... args) {
  LogLine(LogLevel::kWarning, absl::StrFormat(format, args...));
}
template <typename... Args>
void LogError(const absl::FormatSpec<Args...>& format, const Args&... args) {
  LogLine(LogLevel::kError, absl::StrFormat(format, args...));
}

}  // namespace penstock
