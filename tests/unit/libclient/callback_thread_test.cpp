// The caller's functions on their own thread.
#include "libclient/callback_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace syncd::client {
namespace {

TEST(CallbackThread, CallsBeyondTheLimitAreDroppedAndTheOthersKeepTheirOrder) {
  constexpr std::size_t kMax = CallbackThread::kWaitingMax;
  CallbackThread thread("test");
  std::promise<void> began, goes_on;
  ASSERT_TRUE(thread.post([&] {
    began.set_value();
    goes_on.get_future().wait();
  }));
  began.get_future().wait();
  std::vector<std::size_t> called;
  std::promise<void> last;
  for (std::size_t i = 0; i < kMax + 10; ++i) {
    ASSERT_TRUE(thread.post([&called, &last, i] {
      called.push_back(i);
      if (i + 1 == kMax) last.set_value();
    }));
  }
  goes_on.set_value();
  last.get_future().wait();
  // There is room again; what is called next comes after all that were kept.
  std::promise<void> end;
  ASSERT_TRUE(thread.post([&end] { end.set_value(); }));
  end.get_future().wait();
  ASSERT_EQ(called.size(), kMax);
  for (std::size_t i = 0; i < kMax; ++i) ASSERT_EQ(called[i], i);
}

}  // namespace
}  // namespace syncd::client
