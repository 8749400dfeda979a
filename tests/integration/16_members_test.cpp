// Who takes part in a job, as its workers see it: when a process dies, when the daemon does, and
// when it comes back.
#include <gmock/gmock.h>

#include "support/c_api.h"
#include "support/daemon.h"
#include "support/listening.h"
#include "support/workers.h"

namespace syncd::test {
namespace {

using ::testing::ElementsAre;

TEST(Members, WhatAWorkerShowsOutlivesTheDaemon) {
  const TempDir directory;
  Daemon daemon(directory, {.config = "[timeouts]\nworker_grace = \"120s\"\n"});
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

TEST(Members, TheDeathOfAProcessIsToldToTheOthers) {
  const TempDir directory;
  const Daemon daemon(directory,
                      {.store = "memory", .config = "[timeouts]\nworker_grace = \"300ms\"\n"});
  ApiClient client(daemon.address());
  Inbox inbox;
  const Worker listener = join(client.get(), {.name = "listener",
                                              .rank = 0,
                                              .world_size = 2,
                                              .on_event = Inbox::on_event,
                                              .user_data = &inbox});
  WorkerGroup other(directory, {.address = daemon.address(),
                                .policy = "asp",
                                .workers = 1,
                                .first_rank = 1,
                                .world_size = 2});
  other.wait_for_line(1, "joined");
  const auto state_of_other = [&] { return list(listener.get()).at(1).state; };
  EXPECT_EQ(inbox.next().kind, SYNCD_EVENT_MEMBERS);
  EXPECT_EQ(state_of_other(), SYNCD_MEMBER_ACTIVE);
  other.process(1).kill();
  EXPECT_EQ(inbox.next().kind, SYNCD_EVENT_MEMBERS);
  std::int32_t state = state_of_other();
  if (state == SYNCD_MEMBER_DISCONNECTED) {  // unless its grace was over by then
    EXPECT_EQ(inbox.next().kind, SYNCD_EVENT_MEMBERS);
    state = state_of_other();
  }
  EXPECT_EQ(state, SYNCD_MEMBER_LOST);
}

}  // namespace
}  // namespace syncd::test
