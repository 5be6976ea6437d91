#pragma once

// penstock-router from start to exit: listens, loads the model's text side when a worker was
// reached, serves, drains on SIGTERM. Runs on the main thread; signals must be blocked already.

#include <string>

#include "router/router_options.h"

namespace penstock {

// Returns the exit code. notify_socket: see common/base/notify.h.
int RunRouter(const RouterOptions& options, const std::string& notify_socket);

}  // namespace penstock
