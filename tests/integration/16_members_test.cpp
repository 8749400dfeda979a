// Who takes part in a job, as its workers see it when the daemon dies and comes back.
#include <gmock/gmock.h>

#include "support/c_api.h"
#include "support/daemon.h"
#include "support/listening.h"

namespace syncd::test {
namespace {

using ::testing::ElementsAre;

TEST(Members, WhatAWorkerShowsOutlivesTheDaemon) {
  const TempDir directory;
  Daemon daemon(directory, {.config = "[timeouts]\nworker_grace = \"120s\"\nexit_grace = \"120s\"\n"});
  ApiClient gone(daemon.address());
  ApiClient client(daemon.address());
  const std::string bytes("10.0.0.7:4000\0\xff", 15);
  Inbox inbox;
  Worker first = join(gone.get(), {.name = "first", .rank = 0, .data = bytes});
  const Worker second = join(client.get(), {.name = "second",
                                            .rank = 1,
                                            .data = "10.0.0.8:4000",
                                            .on_event = Inbox::on_event,
                                            .user_data = &inbox});
  list(second.get());
  gone.close();
  EXPECT_EQ(inbox.next().kind, SYNCD_EVENT_MEMBERS);
  for (const bool in_good_order : {false, true}) {
    std::uint64_t before = 0;
    list(second.get(), &before);
    if (in_good_order) {
      daemon.stop();
    } else {
      daemon.kill();
    }
    daemon.start();
    EXPECT_EQ(inbox.next().kind, SYNCD_EVENT_MEMBERS) << "much may have changed meanwhile";
    std::uint64_t after = 0;
    EXPECT_THAT(list(second.get(), &after),
                ElementsAre(Member{0, SYNCD_MEMBER_DISCONNECTED, "first", bytes},
                            Member{1, SYNCD_MEMBER_ACTIVE, "second", "10.0.0.8:4000"}));
    EXPECT_GT(after, before) << "versions grow over a restart";
  }
}

}  // namespace
}  // namespace syncd::test
