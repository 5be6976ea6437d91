#include "common/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace penstock {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void InitLog(std::string_view component, LogLevel level) {
  auto logger = std::make_shared<spdlog::logger>(std::string(component),
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%-7l%$ %-9n %v");
  logger->set_level(ToSpdlog(level));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(logger);
}

bool LogEnabled(LogLevel level) {
  return spdlog::default_logger_raw()->should_log(ToSpdlog(level));
}

void LogLine(LogLevel level, std::string_view message) {
  spdlog::default_logger_raw()->log(ToSpdlog(level),
                                    spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace penstock
