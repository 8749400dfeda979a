// Simulated connections: bytes arrive in order, in pieces, late, or not at all. A connection can be
// cut, can go silent, and a client, or a daemon, can be cut off for a while. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "agenda.h"
#include "tests/support/random.h"

namespace syncd::simulation {

using ConnectionKey = std::uint64_t;  // never reused; 0: none

// One end of all connections of a daemon, or of one client.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual void on_open(ConnectionKey connection) = 0;
  virtual void on_bytes(ConnectionKey connection, std::span<const std::uint8_t> bytes) = 0;
  virtual void on_end(ConnectionKey connection, const std::string& reason) = 0;
};

class Network {
 public:
  Network(Agenda& agenda, test::Random& random) : agenda_(agenda), random_(random) {}

  // Who listens at an address, of one daemon or of a cluster's members; null: nobody, connections
  // are refused.
  void listen(std::size_t address, Endpoint* daemon) { daemons_[address] = daemon; }
  // A client asks for a connection; it hears on_open() or on_end(), or nothing for as long as it is
  // cut off.
  ConnectionKey connect(Endpoint& client, std::size_t host, std::size_t address);
  void send(ConnectionKey connection, bool from_client, std::vector<std::uint8_t> bytes);
  // One end closes, and hears of the connection no more; the other hears of it, after the bytes
  // that are under way, unless the end was `silent` (its machine has lost power).
  void close(ConnectionKey connection, bool by_client, bool silent = false);

  // ---- faults
  // Both ends hear that it was reset, each at its time; what is under way then is lost.
  void cut(ConnectionKey connection);
  std::vector<ConnectionKey> open_connections() const;
  // Nothing passes between the daemons and this host, or between this daemon and all hosts, until
  // then; what is under way comes later.
  void cut_off(std::size_t host, Micros until) { away_until_[host] = until; }
  void cut_off_daemon(std::size_t address, Micros until) { daemon_away_until_[address] = until; }

  Micros latency_us = 200;         // about
  std::uint64_t stall_one_in = 0;  // 0: never; a packet that has to be sent again comes much later

 private:
  struct Side {
    Endpoint* endpoint = nullptr;  // null: has closed, or was never there
    Micros last_at = 0;            // when the latest of what is sent to it arrives
  };
  struct Connection {
    std::size_t host = 0;
    std::size_t address = 0;
    Side client, daemon;
    bool reset = false;
  };
  Micros delay();
  Micros arrival(Connection& connection, Side& to);
  void deliver(ConnectionKey key, bool to_client, std::function<void(Endpoint&)> what);
  void forget_if_over(ConnectionKey key);

  Agenda& agenda_;
  test::Random& random_;
  std::map<std::size_t, Endpoint*> daemons_;
  ConnectionKey next_ = 1;
  std::map<ConnectionKey, Connection> connections_;
  std::map<std::size_t, Micros> away_until_;
  std::map<std::size_t, Micros> daemon_away_until_;
};

}  // namespace syncd::simulation
