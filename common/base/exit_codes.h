#pragma once

// Exit codes of every Penstock binary, for supervisors (docs/operations.md lists them). systemd's
// unit does not restart on kUsage and kModel: trying again cannot help.

namespace penstock {

inline constexpr int kExitOk = 0;       // drained, or nothing was left to do
inline constexpr int kExitFailure = 1;  // a fault at run time
inline constexpr int kExitUsage = 2;   // a flag, the environment or the configuration file is wrong
inline constexpr int kExitModel = 3;   // the model cannot be found, fetched, read or fitted
inline constexpr int kExitBind = 4;    // the address or port cannot be listened on
inline constexpr int kExitGaveUp = 5;  // a child kept failing before it was ever ready

}  // namespace penstock
