// Waiting with an end: every wait of these tests polls a condition until it holds or a deadline
// passes, and then says what it waited for. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>

namespace syncd::test {

using Milliseconds = std::chrono::milliseconds;

// Long enough for a busy machine and a sanitizer build: only a test that hangs anyway sees its end.
inline constexpr Milliseconds kPatience{60'000};

class Deadline {
 public:
  explicit Deadline(Milliseconds timeout = kPatience)
      : at_(std::chrono::steady_clock::now() + timeout) {}

  bool passed() const { return std::chrono::steady_clock::now() >= at_; }
  int left_ms() const {
    const auto left =
        std::chrono::duration_cast<Milliseconds>(at_ - std::chrono::steady_clock::now());
    return left.count() < 0 ? 0 : static_cast<int>(left.count());
  }

 private:
  std::chrono::steady_clock::time_point at_;
};

// Returns when `condition()` is true; throws at the deadline, naming `what`. The pause between two
// looks only keeps the processor free for those who are waited for.
template <typename Condition>
void wait_until(const std::string& what, Condition&& condition, Milliseconds timeout = kPatience) {
  const Deadline deadline(timeout);
  while (!condition()) {
    if (deadline.passed()) {
      throw std::runtime_error("waited " + std::to_string(timeout.count()) + " ms for " + what);
    }
    std::this_thread::sleep_for(Milliseconds(2));
  }
}

}  // namespace syncd::test
