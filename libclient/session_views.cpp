// The session's views: who trains together, as grants and notices say, and what a worker shows to
// the others of its view. Same thread as the session.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "libclient/session.h"

namespace syncd::client {

void Session::take_views(Worker& worker, const wire::Joined& joined) {
  worker.views = joined.views;
  worker.rounds = joined.views && std::string_view(joined.policy).starts_with("gather");
  link_.lower_heartbeat_timeout(joined.heartbeat_timeout_ms,
                                joined.heartbeat_timeout_ms == worker.params.heartbeat_timeout_ms);
  // A new handle's signals know nothing yet.
  if (worker[kJoin].active) set_round(worker, worker.round);
  const RoundState round{joined.round, joined.round_gone, joined.round_room};
  if (joined.resumed) on_round(worker, round);
}

// Taken back. A begin that is pending asks for the same round again: its grant may have been lost.
// Where the daemon had given the worker up, it is no member of its round any more, though its
// caller still is in it.
void Session::adopt_round(Worker& worker, const wire::Joined& joined) {
  if (joined.resumed) return;
  break_round(worker);
  worker.grant_ready = false;
  worker.granted = -1;
  worker.next = joined.iteration;
  worker.early_round = {};
  if (worker[kWait].kind == kBegin) worker[kWait].iteration = worker.next;
}

// By a begin.
void Session::end_round(Worker& worker) {
  worker.open = false;
  if (!worker[kWait].active) worker.next = std::max(worker.joined_at, worker.granted + 1);
}

void Session::enter_view(Worker& worker, std::uint64_t number) {
  if (worker.round.number == number) return;
  const bool is_known = worker.early_round.number == number;
  set_round(worker, is_known ? worker.early_round : RoundState{number, 0, 0});
}

// What is said of a round may overtake its grant, which waits for the daemon's disk. Of an earlier
// one it says nothing any more.
void Session::on_round(Worker& worker, const RoundState& round) {
  if (round.number == worker.round.number) return set_round(worker, round);
  if (round.number > worker.round.number) worker.early_round = round;
}

void Session::set_round(Worker& worker, const RoundState& round) {
  const bool is_news = worker.round != round && round.gone + round.room != 0;
  worker.round = round;
  if (worker.params.signals) worker.params.signals->set_round(round);
  if (is_news) tell_event(worker, {.kind = Event::Kind::kRound, .version = round.number});
}

// This worker is no member of its round any more.
void Session::break_round(Worker& worker) {
  if (worker.round.number == 0 || !worker.open) return;
  RoundState round = worker.round;
  round.gone = std::max(round.gone, 1U);
  set_round(worker, round);
}

// One part of a list.
void Session::on_view_page(Worker& worker, Side& side, const wire::ViewReply& page) {
  if (side.iteration == 0) {
    side.view = page;
  } else {
    auto& all = side.view.members;
    all.insert(all.end(), page.members.begin(), page.members.end());
  }
  if (page.next_rank < 0) {
    side.view.next_rank = -1;
    return end_side(worker, side, std::move(side.view));
  }
  if (page.next_rank > side.iteration && page.next_rank <= INT32_MAX) {
    side.iteration = page.next_rank;
    return send_pending(worker);
  }
  const std::string wrong = "the daemon's list goes on at rank " + std::to_string(page.next_rank) +
                            " after rank " + std::to_string(side.iteration);
  complete(side.op, Status::kProtocol, call_text(side, worker) + ": " + wrong);
  end_side(worker, side, std::monostate{});
}

}  // namespace syncd::client
