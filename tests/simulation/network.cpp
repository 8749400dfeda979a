// See network.h.
#include "network.h"

#include <algorithm>
#include <utility>

namespace syncd::simulation {
namespace {

constexpr Micros kStallUs = 3'000'000;

}  // namespace

Micros Network::delay() {
  Micros span = 1 + static_cast<Micros>(random_.below(static_cast<std::uint64_t>(2 * latency_us)));
  if (stall_one_in > 0 && random_.one_in(stall_one_in)) {
    span += static_cast<Micros>(random_.below(kStallUs));
  }
  return span;
}

// In the order of sending, and not while one of the two is cut off.
Micros Network::arrival(Connection& connection, Side& to) {
  Micros at = agenda_.now() + delay();
  const Micros away =
      std::max(away_until_[connection.host], daemon_away_until_[connection.address]);
  if (away > agenda_.now()) at = away + delay();
  to.last_at = std::max(to.last_at, at);
  return to.last_at;
}

ConnectionKey Network::connect(Endpoint& client, std::size_t host, std::size_t address) {
  const ConnectionKey key = next_++;
  Connection& connection = connections_[key];
  connection.host = host;
  connection.address = address;
  connection.client.endpoint = &client;
  agenda_.at(arrival(connection, connection.daemon), [this, key] {
    const auto found = connections_.find(key);
    if (found == connections_.end()) return;
    Connection& asked = found->second;
    Endpoint* daemon = daemons_[asked.address];
    if (daemon == nullptr) {
      deliver(key, true, [key](Endpoint& endpoint) { endpoint.on_end(key, "connection refused"); });
      asked.reset = true;
      return;
    }
    asked.daemon.endpoint = daemon;
    daemon->on_open(key);
    deliver(key, true, [key](Endpoint& endpoint) { endpoint.on_open(key); });
  });
  return key;
}

// Something that one side hears of in its turn, if it still listens then. A daemon that has died
// and was started again has another endpoint.
void Network::deliver(ConnectionKey key, bool to_client, std::function<void(Endpoint&)> what) {
  const auto found = connections_.find(key);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  Side& to = to_client ? connection.client : connection.daemon;
  agenda_.at(arrival(connection, to), [this, key, to_client, what = std::move(what)] {
    const auto still = connections_.find(key);
    if (still == connections_.end()) return;
    Side& side = to_client ? still->second.client : still->second.daemon;
    if (side.endpoint != nullptr) {
      what(*side.endpoint);
    } else if (!still->second.reset) {
      // Nobody is there any more: the sender is told so.
      still->second.reset = true;
      deliver(key, !to_client,
              [key](Endpoint& endpoint) { endpoint.on_end(key, "connection reset by peer"); });
    }
  });
}

void Network::send(ConnectionKey key, bool from_client, std::vector<std::uint8_t> bytes) {
  const auto found = connections_.find(key);
  if (found == connections_.end() || found->second.reset) return;
  // In up to three pieces.
  for (std::size_t done = 0, piece = 0; done < bytes.size(); ++piece) {
    const std::size_t left = bytes.size() - done;
    const std::size_t size = piece == 2 || random_.one_in(2) ? left : 1 + random_.below(left);
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(done);
    std::vector<std::uint8_t> part(first, first + static_cast<std::ptrdiff_t>(size));
    done += size;
    deliver(key, !from_client,
            [key, part = std::move(part)](Endpoint& endpoint) { endpoint.on_bytes(key, part); });
  }
}

void Network::close(ConnectionKey key, bool by_client, bool silent) {
  const auto found = connections_.find(key);
  if (found == connections_.end()) return;
  (by_client ? found->second.client : found->second.daemon).endpoint = nullptr;
  if (!silent && !found->second.reset) {
    deliver(key, !by_client, [key](Endpoint& endpoint) { endpoint.on_end(key, "end of stream"); });
  }
  forget_if_over(key);
}

void Network::cut(ConnectionKey key) {
  const auto found = connections_.find(key);
  if (found == connections_.end() || found->second.reset) return;
  found->second.reset = true;
  for (const bool to_client : {true, false}) {
    Side& side = to_client ? found->second.client : found->second.daemon;
    if (side.endpoint == nullptr) continue;
    // Before what is under way, which is then for nobody.
    agenda_.in(delay(), [this, key, to_client] {
      const auto still = connections_.find(key);
      if (still == connections_.end()) return;
      Side& hears = to_client ? still->second.client : still->second.daemon;
      Endpoint* endpoint = std::exchange(hears.endpoint, nullptr);
      if (endpoint != nullptr) endpoint->on_end(key, "connection reset by peer");
      forget_if_over(key);
    });
  }
}

void Network::forget_if_over(ConnectionKey key) {
  const auto found = connections_.find(key);
  if (found == connections_.end() || found->second.client.endpoint != nullptr ||
      found->second.daemon.endpoint != nullptr) {
    return;
  }
  connections_.erase(found);
}

std::vector<ConnectionKey> Network::open_connections() const {
  std::vector<ConnectionKey> keys;
  for (const auto& [key, connection] : connections_) {
    if (connection.client.endpoint != nullptr && connection.daemon.endpoint != nullptr &&
        !connection.reset) {
      keys.push_back(key);
    }
  }
  return keys;
}

}  // namespace syncd::simulation
