#pragma once

// The life of penstock-worker: load, serve, drain. Returns the exit code
// (common/base/exit_codes.h).

#include <string>

#include "worker/worker_options.h"

namespace penstock {

// SIGTERM and SIGINT must be blocked in the calling thread before any other thread exists.
// notify_socket: NOTIFY_SOCKET of the supervisor, or empty.
int RunWorker(const WorkerOptions& options, const std::string& notify_socket);

}  // namespace penstock
