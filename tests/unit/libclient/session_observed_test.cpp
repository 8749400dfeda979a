// Jobs under observation: a worker says that it exchanges, and answers where it is.
#include "script.h"

namespace syncd::client {
namespace {

class ObservedScript : public Script {
 public:
  explicit ObservedScript(TimeUs hang_after_us) {
    welcome();
    JoinRequest request = Script::request();
    request.hang_after_us = hang_after_us;
    request.signals = signals = std::make_shared<WorkerSignals>(
        nullptr, [this](const Event& event) { heard.push_back(event); }, nullptr,
        [this] { return "asked " + std::to_string(++asked); });
    const OpId op = start_join(std::move(request));
    join = take<wire::Join>();
    wire::Joined joined = Script::joined();
    joined.hang_after_us = hang_after_us;
    answer(joined);
    worker = std::get<JoinResult>(end(op).result).worker;
  }
  void pass(TimeUs span_us) {
    advance(span_us);
    std::erase_if(sent, [](const wire::Message& message) {
      return std::holds_alternative<wire::Heartbeat>(message.body);
    });
  }
  std::vector<Event> heard;
  int asked = 0;
  wire::Join join;
};

TEST(Observed, AWorkerThatExchangesForLongSaysSoUntilItsPush) {
  constexpr TimeUs kEvery = kSecond / 4;  // a quarter of hang_after
  ObservedScript script(kSecond);
  EXPECT_EQ(script.join.hang_after_us, kSecond);
  script.granted(0);
  script.pass(4 * kEvery);
  EXPECT_TRUE(script.quiet()) << "it computes";
  script.signals->mark_computed(script.now);
  script.pass(kEvery - 1);
  EXPECT_TRUE(script.quiet()) << "it has not exchanged for long";
  script.pass(1);
  const auto says = script.take<wire::Exchanging>();
  EXPECT_EQ(says.iteration, 0);
  EXPECT_EQ(says.for_us, kEvery);
  script.answer(wire::Ok{});
  script.pass(kEvery);
  EXPECT_EQ(script.take<wire::Exchanging>().for_us, 2 * kEvery);
  script.pushed(0);
  script.pass(4 * kEvery);
  EXPECT_TRUE(script.quiet());
}

TEST(Observed, WhoIsNotObservedSaysNothing) {
  ObservedScript script(0);
  script.granted(0);
  script.signals->mark_computed(script.now);
  script.pass(3 * kSecond);
  EXPECT_TRUE(script.quiet());
}

TEST(Observed, AHangIsToldAsItCame) {
  ObservedScript script(-1);
  EXPECT_NE(script.join.notices & wire::kNoticeHang, 0U);
  wire::HangNotice notice{Script::joined().worker, 3, 20, 31 * kSecond, "waiting for worker 3"};
  script.notify(notice);
  ASSERT_EQ(script.heard.size(), 1U);
  EXPECT_EQ(script.heard[0].kind, Event::Kind::kHang);
  EXPECT_EQ(script.heard[0].hang, notice);
  notice.worker.incarnation += 1;
  script.notify(notice);
  EXPECT_EQ(script.heard.size(), 1U) << "another's";
}

TEST(Observed, AnInspectionIsHandedOutAndAnsweredOnce) {
  ObservedScript script(-1);
  EXPECT_NE(script.join.notices & wire::kNoticeInspect, 0U);
  script.notify(wire::InspectNotice{Script::joined().worker, 5});
  ASSERT_EQ(script.session.inspections().size(), 1U);
  const PendingInspection inspection = script.session.inspections()[0];
  EXPECT_EQ(inspection.number, 5U);
  const std::string text = inspection.signals->inspect(script.now);
  EXPECT_EQ(text, "asked 1");
  EXPECT_EQ(inspection.signals->inspect(script.now + kSecond - 1), "asked 1") << "once a second";
  EXPECT_EQ(inspection.signals->inspect(script.now + kSecond), "asked 2");
  script.session.inspected({99, {}, script.now}, inspection.worker, 5, text);
  const auto answer = script.take<wire::Inspected>();
  EXPECT_EQ(answer.number, 5U);
  EXPECT_EQ(std::string(answer.text.begin(), answer.text.end()), text);
  script.signals->disown();
  EXPECT_EQ(inspection.signals->inspect(script.now + 9 * kSecond), "") << "its owner has gone";
}

}  // namespace
}  // namespace syncd::client
