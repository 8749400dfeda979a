// What the daemon does with each type of message, whenever and however it is sent: one table.
#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/unit/server/server_fixture.h"

namespace syncd::server {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Heard = std::vector<std::string>;

struct Row {
  std::string_view type;
  // What follows an empty one with id 1 in a session. The two below: the session ends.
  std::string_view answer;
  bool for_administrators = false;
  bool is_audited = for_administrators;
};
constexpr std::string_view kBroken = "broken";
constexpr std::string_view kOfTheDaemon = "only the daemon sends these";

constexpr auto kRows = std::to_array<Row>({
    {"Hello", kBroken},
    {"Welcome", kOfTheDaemon},
    {"Error", kOfTheDaemon},
    {"Ok", kOfTheDaemon},
    {"Join", "Error SYNCD_E_INVALID", false, true},
    {"Joined", kOfTheDaemon},
    {"Leave", "Error SYNCD_E_UNKNOWN_JOB"},
    {"Begin", "Error SYNCD_E_UNKNOWN_JOB"},
    {"Granted", kOfTheDaemon},
    {"Push", "Error SYNCD_E_UNKNOWN_JOB"},
    {"Pushed", kOfTheDaemon},
    {"Explain", "Error SYNCD_E_UNKNOWN_JOB"},
    {"Explanation", kOfTheDaemon},
    {"CancelBegin", "Error SYNCD_E_UNKNOWN_JOB"},
    {"StopNotice", kOfTheDaemon},
    {"FencedNotice", kOfTheDaemon},
    {"ResyncNotice", kOfTheDaemon},
    {"ShutdownNotice", kOfTheDaemon},
    {"Heartbeat", "HeartbeatAck"},
    {"HeartbeatAck", ""},
    {"StatusRequest", "StatusReply"},
    {"StatusReply", kOfTheDaemon},
    {"JobsRequest", "JobsReply"},
    {"JobsReply", kOfTheDaemon},
    {"WorkersRequest", "Error SYNCD_E_UNKNOWN_JOB"},
    {"WorkersReply", kOfTheDaemon},
    {"HistoryRequest", "Error SYNCD_E_UNKNOWN_JOB"},
    {"HistoryReply", kOfTheDaemon},
    {"CreateJobRequest", "Error SYNCD_E_INVALID", true},
    {"StopJobRequest", "Error SYNCD_E_UNKNOWN_JOB", true},
    {"Restarted", "Error SYNCD_E_UNKNOWN_JOB"},
    {"Targets", "Error SYNCD_E_UNKNOWN_JOB"},
    {"TargetsReply", kOfTheDaemon},
    {"Collect", "Error SYNCD_E_UNKNOWN_JOB"},
    {"CollectReply", kOfTheDaemon},
    {"Consumed", "Error SYNCD_E_UNKNOWN_JOB"},
    {"SetPolicyRequest", "Error SYNCD_E_UNKNOWN_JOB", true},
    {"Phase", "Error SYNCD_E_UNKNOWN_JOB"},
    {"MembersRequest", "Error SYNCD_E_UNKNOWN_JOB"},
    {"MembersReply", kOfTheDaemon},
    {"MembersNotice", kOfTheDaemon},
    {"PlanNotice", kOfTheDaemon},
    {"ManageWorkerRequest", "Error SYNCD_E_UNKNOWN_JOB", true},
    {"CheckpointRequest", "Error SYNCD_E_INVALID", true},
    {"Arrive", "Error SYNCD_E_UNKNOWN_JOB"},
    {"ViewGranted", kOfTheDaemon},
    {"ViewRequest", "Error SYNCD_E_UNKNOWN_JOB"},
    {"ViewReply", kOfTheDaemon},
    {"RoundNotice", kOfTheDaemon},
    {"ExcludeRequest", "Error SYNCD_E_UNKNOWN_JOB", true},
    {"Exchanging", "Error SYNCD_E_UNKNOWN_JOB"},
    {"HangNotice", kOfTheDaemon},
    {"InspectNotice", kOfTheDaemon},
    {"Inspected", "Error SYNCD_E_UNKNOWN_JOB"},
    {"InspectRequest", "Error SYNCD_E_UNKNOWN_JOB", true},
    {"InspectReply", kOfTheDaemon},
    {"AskCheckpoint", "Error SYNCD_E_UNKNOWN_JOB"},
    {"OrderCheckpoint", "Error SYNCD_E_UNKNOWN_JOB", true},
    {"CheckpointAsked", kOfTheDaemon},
    {"Checkpointed", "Error SYNCD_E_UNKNOWN_JOB"},
    {"LatestCheckpoint", "Error SYNCD_E_UNKNOWN_JOB"},
    {"LatestCheckpointReply", kOfTheDaemon},
    {"StragglerNotice", kOfTheDaemon},
    {"Redirect", kOfTheDaemon},
});

// One of each type that can be sent, in the order of the rows.
std::vector<wire::Body> bodies() {
  return []<std::size_t... I>(std::index_sequence<I...>) {
    return std::vector<wire::Body>{std::variant_alternative_t<I + 1, wire::Body>{}...};
  }
  (std::make_index_sequence<std::variant_size_v<wire::Body> - 1>());
}

class Messages : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    ASSERT_EQ(kRows.size(), bodies().size()) << "a type of message has no row here";
    ServerOptions o = options();
    o.control_unix_path = directory_ + "/control";
    ASSERT_EQ(start(std::move(o), store::make_memory_store()), StartError::kNone) << error_;
    bystander_ = connect();
  }
  void TearDown() override {
    bystander_.reset();  // so that the daemon waits for nobody
    ServerTest::TearDown();
  }

  // What a client hears that sends these bytes: "TYPE" or "Error STATUS" for each message, and then
  // "closed" if its connection ends. Leaves the messages' ids and the text of the last error.
  Heard say(std::unique_ptr<RawClient> client, const Bytes& bytes) {
    client->send_bytes(bytes);
    // Once another client has been served three times, the loop has seen everything that came.
    for (int i = 0; i < 3; ++i) {
      ask<wire::StatusReply>(*bystander_, wire::StatusRequest{});
      client->receive();
    }
    Heard heard;
    text_.clear();
    ids_.clear();
    for (const wire::Message& message : client->messages) {
      heard.emplace_back(wire::body_name(message.body));
      ids_.push_back(message.id);
      if (const auto* error = std::get_if<wire::Error>(&message.body)) {
        heard.back() += " " + std::string(status_name(error->status));
        text_ = error->message;
      }
    }
    if (client->ended) heard.emplace_back("closed");
    return heard;
  }
  // In a session, over the control socket or not.
  Heard say_welcomed(const Bytes& bytes, bool control = true) {
    auto client = std::make_unique<RawClient>(directory_ + (control ? "/control" : "/s"));
    client->hello();
    EXPECT_TRUE(run_until([&] {
      client->receive();
      return client->last<wire::Welcome>() != nullptr;
    }));
    client->messages.clear();
    return say(std::move(client), bytes);
  }
  void expect_rejected(const Heard& heard, const std::string& why) {
    EXPECT_EQ(heard, (Heard{"Error SYNCD_E_PROTOCOL", "closed"}));
    EXPECT_NE(text_.find(why), std::string::npos) << text_ << ", and not " << why;
  }

  static void for_each(const std::function<void(const Row&, const wire::Body&)>& check) {
    const std::vector<wire::Body> all = bodies();
    for (std::size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(std::string(kRows[i].type));
      ASSERT_EQ(wire::body_name(all[i]), kRows[i].type);
      check(kRows[i], all[i]);
    }
  }

  std::unique_ptr<RawClient> bystander_;
  std::string text_;
  std::vector<std::uint64_t> ids_;
};

std::string refusal(const Row& row) {
  if (row.answer == kBroken) return "a second Hello: a connection has one handshake";
  return "a message of type " + std::string(row.type) +
         " came from a client: only the daemon sends these";
}
bool ends_session(const Row& row) {
  return row.answer == kBroken || row.answer == kOfTheDaemon;
}

TEST_F(Messages, OnlyHelloMayComeFirst) {
  for_each([&](const Row& row, const wire::Body& body) {
    auto client = std::make_unique<RawClient>(directory_ + "/s");
    if (row.type == "Hello") {
      const wire::Hello hello{kProtocolMin, kProtocolMax, "test", "1", ""};
      EXPECT_EQ(say(std::move(client), RawClient::frame({1, hello})), Heard{"Welcome"});
      return;
    }
    expect_rejected(say(std::move(client), RawClient::frame({1, body})),
                    "the first message is of type " + std::string(row.type) +
                        ": a connection begins with Hello");
  });
}

TEST_F(Messages, EachIsAnsweredOrEndsTheSession) {
  for_each([&](const Row& row, const wire::Body& body) {
    const auto heard = say_welcomed(RawClient::frame({1, body}));
    if (ends_session(row)) return expect_rejected(heard, refusal(row));
    const std::size_t answers = row.answer.empty() ? 0 : 1;
    EXPECT_EQ(heard, Heard(answers, std::string(row.answer))) << text_;
    EXPECT_EQ(ids_, std::vector<std::uint64_t>(answers, 1));
  });
}

TEST_F(Messages, ARequestNeedsAnId) {
  for_each([&](const Row& row, const wire::Body& body) {
    const auto heard = say_welcomed(RawClient::frame({0, body}));
    if (ends_session(row)) return expect_rejected(heard, refusal(row));
    if (row.type.starts_with("Heartbeat")) {
      EXPECT_EQ(heard, Heard(row.answer.empty() ? 0 : 1, std::string(row.answer)));
      return;
    }
    expect_rejected(heard, "a request of type " + std::string(row.type) +
                               " came with id 0: a request needs an id from 1");
  });
}

TEST_F(Messages, TwoInOneWriteAreTwo) {
  for_each([&](const Row& row, const wire::Body& body) {
    const Bytes once = RawClient::frame({1, body});
    Bytes twice = once;
    twice.insert(twice.end(), once.begin(), once.end());
    const auto heard = say_welcomed(twice);
    if (ends_session(row)) return expect_rejected(heard, refusal(row));
    EXPECT_EQ(heard, Heard(row.answer.empty() ? 0 : 2, std::string(row.answer)));
  });
}

// The frame's length is right: it is the message that is cut.
TEST_F(Messages, HalfOfOneEndsTheSession) {
  for_each([&](const Row&, const wire::Body& body) {
    Bytes half = RawClient::frame({1, body});
    half.resize(4 + (half.size() - 4) / 2);
    half[0] = static_cast<std::uint8_t>(half.size() - 4);
    half[1] = 0;
    expect_rejected(say_welcomed(half), "message");
    expect_rejected(say(std::make_unique<RawClient>(directory_ + "/s"), half), "message");
  });
}

TEST_F(Messages, TheBeginningOfOneIsNothingYet) {
  for_each([&](const Row&, const wire::Body& body) {
    Bytes beginning = RawClient::frame({1, body});
    beginning.pop_back();
    EXPECT_EQ(say_welcomed(beginning), Heard{});
  });
}

TEST_F(Messages, ALargerOneThanAFrameEndsTheSession) {
  for_each([&](const Row&, const wire::Body& body) {
    Bytes larger = RawClient::frame({1, body});
    const std::uint32_t length = kDefaultMaxFrameBytes + 1;
    for (int i = 0; i < 4; ++i) larger[i] = static_cast<std::uint8_t>(length >> 8 * i);
    expect_rejected(say_welcomed(larger), "allowed are 1 to " + std::to_string(length - 1));
    expect_rejected(say(std::make_unique<RawClient>(directory_ + "/s"), larger),
                    "allowed are 1 to 8192");
  });
}

// Where there is a control socket, a change is refused elsewhere; the log tells of it either way.
TEST_F(Messages, ThoseForAdministratorsAreRefusedToOthers) {
  for_each([&](const Row& row, const wire::Body& body) {
    lines_.clear();
    const auto heard = say_welcomed(RawClient::frame({1, body}), false);
    EXPECT_EQ(count("refused"), row.for_administrators ? 1U : 0U);
    EXPECT_EQ(count("audit"), row.is_audited ? 1U : 0U);
    EXPECT_EQ(heard == Heard{"Error SYNCD_E_AUTH"}, row.for_administrators);
    lines_.clear();
    say_welcomed(RawClient::frame({1, body}));
    EXPECT_EQ(count("refused"), 0U);
    EXPECT_EQ(count("audit"), row.is_audited ? 1U : 0U) << "who asks for a change";
  });
}

TEST_F(Messages, OneOfALaterVersionIsRefusedOrSkipped) {
  const auto unknown = [](std::uint64_t id) {
    Bytes frame = RawClient::frame({id, wire::CheckpointRequest{}});
    const auto type = static_cast<std::uint8_t>(wire::Body(wire::CheckpointRequest{}).index());
    EXPECT_EQ(std::count(frame.begin(), frame.end(), type), 1);
    *std::find(frame.begin(), frame.end(), type) = 200;
    return frame;
  };
  EXPECT_EQ(say_welcomed(unknown(1)), Heard{"Error SYNCD_E_UNSUPPORTED"});
  EXPECT_EQ(text_, "this daemon does not know requests of type 200");
  EXPECT_EQ(say_welcomed(unknown(0)), Heard{});
}

}  // namespace
}  // namespace syncd::server
