// What daemon, client and tools use by default: ports, paths, limits of the protocol. Reads the
// environment only in the functions below. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace syncd {

inline constexpr std::uint16_t kDefaultPort = 7117;
inline constexpr std::uint16_t kDefaultAdminPort = 7118;
inline constexpr std::uint16_t kProtocolMin = 1;  // oldest protocol version this build speaks
inline constexpr std::uint16_t kProtocolMax = 1;  // newest one

// A control message is a few hundred bytes; histories and long lists are sent in several frames. A
// larger length prefix is therefore garbage or an attack, and closes the connection.
inline constexpr std::size_t kDefaultMaxFrameBytes = 64 * 1024;

// $XDG_RUNTIME_DIR/syncd.sock; for root, or where that is unset, /run/syncd/syncd.sock (root) or
// /tmp/syncd-<uid>/syncd.sock (others).
std::string default_unix_socket_path();

// $STATE_DIRECTORY/store (systemd), for root /var/lib/syncd/store (either without "store" if that
// is a store), else $XDG_STATE_HOME/syncd or $HOME/.local/state/syncd.
std::string default_store_path();

}  // namespace syncd
