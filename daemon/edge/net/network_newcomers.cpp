// Who gets a place: the limits that a newcomer meets, and who makes room; see network.h. Loop
// thread.
#include <sys/socket.h>

#include <algorithm>

#include "daemon/edge/net/network.h"

namespace syncd::net {

// The machine, or on this one the user.
std::string Network::source_of(const Accepted& accepted) {
  return accepted.is_tcp ? accepted.machine : "uid " + std::to_string(accepted.uid);
}

// False: the newcomer has been told why it is not served. Those that have not introduced themselves
// make room, or whoever has no right at all could keep out those who have one.
bool Network::has_room(const Accepted& accepted) {
  const auto found = per_machine_.find(accepted.machine);
  const std::size_t of_machine = accepted.is_tcp && found != per_machine_.end() ? found->second : 0;
  std::string full;
  Connection* oldest = nullptr;
  Refusal why = Refusal::kMachineMax;
  if (of_machine >= options_.connections_per_machine_max) {
    full = "this daemon serves " + std::to_string(of_machine) +
           " connections of this machine already, the most allowed "
           "(limits.connections_per_machine_max)";
    oldest = oldest_unintroduced(source_of(accepted));
  } else if (connection_count_ >= options_.connections_max) {
    full = "this daemon serves " + std::to_string(connection_count_) +
           " connections already, the most allowed (limits.connections_max)";
    why = Refusal::kConnectionsMax;
    oldest = oldest_unintroduced(busiest_source());
  }
  if (!full.empty() && oldest == nullptr) {
    count(why);
    refuse_newcomer(accepted, full);
    return false;
  }
  if (accepted.is_tcp && !may_shake_hands(accepted)) return false;
  if (oldest == nullptr) return true;
  turn_out(*oldest, full + ": one that has not introduced itself makes room");
  return true;
}

// Null: there is none.
Connection* Network::oldest_unintroduced(const std::string& source) {
  for (const ConnectionId id : unintroduced_) {
    Connection* connection = find(id);
    if (connection != nullptr && connection->state() != Connection::State::kClosed &&
        source_of(connection->accepted()) == source) {
      return connection;
    }
  }
  return nullptr;
}

// Where most of those come from that have not introduced themselves.
std::string Network::busiest_source() const {
  const auto most = std::max_element(
      unintroduced_of_.begin(), unintroduced_of_.end(),
      [](const auto& one, const auto& other) { return one.second < other.second; });
  return most == unintroduced_of_.end() ? std::string{} : most->first;
}

void Network::no_longer_unintroduced(const Connection& connection) {
  if (unintroduced_.erase(connection.id()) == 0) return;
  const auto found = unintroduced_of_.find(source_of(connection.accepted()));
  if (--found->second == 0) unintroduced_of_.erase(found);
}

// Before the handshake costs anything: it needs no credentials to be begun.
bool Network::may_shake_hands(const Accepted& accepted) {
  const std::uint32_t per_s = options_.handshakes_per_machine_per_s;
  if (tls_ == nullptr || handshakes_.take(accepted.machine, per_s, uv_now(loop_))) return true;
  count(Refusal::kHandshakes);
  log(LogLevel::kWarn, "handshake_refused", nullptr,
      {{"peer", accepted.peer},
       {"reason", "its machine begins more than " + std::to_string(per_s) +
                      " TLS handshakes a second, the most allowed "
                      "(limits.handshakes_per_machine_per_s)"}});
  return false;
}

void Network::make_room() {
  if (unintroduced_.size() < options_.unintroduced_max) return;
  Connection* oldest = oldest_unintroduced(busiest_source());
  if (oldest == nullptr) return;
  turn_out(*oldest, std::to_string(options_.unintroduced_max) +
                        " connections have not introduced themselves, the most allowed: the oldest "
                        "of where most come from makes room");
}

void Network::turn_out(Connection& unintroduced, const std::string& text) {
  count(Refusal::kUnintroduced);
  no_longer_unintroduced(unintroduced);
  // Once for each time that it gets so far, or the log would be one more thing to fill up.
  const LogLevel level = limit_reported_ ? LogLevel::kDebug : LogLevel::kWarn;
  limit_reported_ = true;
  end(unintroduced, text, level);
}

void Network::refuse_newcomer(const Accepted& accepted, const std::string& text) {
  // Before the newcomer hears of it: who was refused and asks the log finds the reason there.
  if (!limit_reported_) {
    limit_reported_ = true;
    log(LogLevel::kWarn, "connections_refused", nullptr,
        {{"peer", accepted.peer}, {"reason", text}});
  }
  // Somebody who expects TLS could not read it.
  if (accepted.is_tcp && tls_ != nullptr) return;
  std::vector<std::uint8_t> frame;
  encoder_.append({0, wire::Error{Status::kLimit, text}}, frame);
  // As much as can be done without keeping anything of it: a fresh socket takes a small frame.
  if (::send(accepted.fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) {
    ::shutdown(accepted.fd.get(), SHUT_WR);
  }
}

}  // namespace syncd::net
