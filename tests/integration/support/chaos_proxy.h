// A network that behaves badly, between clients and a daemon: it takes connections at an address of
// its own, makes one to the daemon for each, and passes on what it reads late, slowly, in single
// bytes, many frames at once, or not at all. One thread of its own; the functions are for the
// test's main thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

namespace syncd::test {

// What becomes of one connection, after some bytes of its own count.
enum class Fate {
  kCut,             // closed on both sides, in the middle of whatever is under way
  kCutAfterwards,   // likewise, but what was read is passed on first
  kRefused,         // closed before a byte is read
  kSilent,          // taken, and nothing is ever passed on
  kFrozen,          // nothing is passed on or read any more, nor is an end noticed
  kHalfClosed,      // one direction ends with an end of file, the other goes on
  kDeafToClients,   // what a client sends is read and lost
  kDeafToDaemon,    // what the daemon sends is read and lost
  kStalledClients,  // what a client sends is not even read
  kStalledDaemon,   // what the daemon sends is not even read
};
inline constexpr std::size_t kFates = 10;

struct ChaosProxyOptions {
  std::string listen = {};    // "unix:PATH", or "127.0.0.1:0" for any free port
  std::string upstream = {};  // the daemon: "unix:PATH" or "127.0.0.1:PORT"
  // Decides what the n-th connection meets and how its bytes are passed on.
  std::uint64_t seed = 1;
};

class ChaosProxy {
 public:
  explicit ChaosProxy(const ChaosProxyOptions& options);
  // Closes everything at once.
  ~ChaosProxy();
  ChaosProxy(const ChaosProxy&) = delete;
  ChaosProxy& operator=(const ChaosProxy&) = delete;

  // Where clients are to connect.
  const std::string& address() const { return address_; }
  // Connections taken so far.
  std::size_t connections() const { return connections_.load(); }
  // True when every fate has struck some connection.
  bool all_fates_struck() const;

 private:
  class Loop;

  void struck(Fate fate) { struck_.fetch_or(1U << static_cast<unsigned>(fate)); }

  std::string address_;
  std::atomic<std::size_t> connections_{0};
  std::atomic<unsigned> struck_{0};  // a bit for each fate
  int wake_[2] = {-1, -1};           // closing its writing end ends the thread
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace syncd::test
