#pragma once

// The service manager's readiness protocol (sd_notify), over the datagram socket that NOTIFY_SOCKET
// names. Used by workers and router towards the launcher, and by the launcher towards systemd.

#include <string>
#include <string_view>

namespace penstock {

// Sends e.g. "READY=1", "STATUS=loading", "STOPPING=1" or "EXTEND_TIMEOUT_USEC=30000000" to
// socket_path (a leading '@' is the abstract namespace). Empty path: does nothing. Errors are
// ignored: a supervisor that went away is not our fault.
void NotifySupervisor(const std::string& socket_path, std::string_view message);

}  // namespace penstock
