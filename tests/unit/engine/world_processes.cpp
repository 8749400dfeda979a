// World: worker processes as the client library drives them, and their connections. One thread.
#include <algorithm>

#include "tests/support/effects_text.h"
#include "world.h"

namespace syncd::test {
namespace {

constexpr int kRefusalsMax = 6;

}  // namespace

// ---- sending

RequestId World::request(ConnectionId connection, wire::Body body) {
  const RequestId id = next_request_++;
  step(Request{{connection, id}, std::move(body)});
  return id;
}

// Does the next thing that this process has to do. False: it can only wait.
bool World::act(Process& p) {
  if (!p.alive()) return false;
  if (p.connection == 0) {
    std::vector<ConnectionId> open;
    for (const auto& [id, frames] : inbox_) open.push_back(id);
    if (!open.empty() && random_.one_in(3)) {
      p.connection = random_.pick(open);
    } else {
      p.connection = next_connection_++;
      inbox_[p.connection];
    }
  }
  if (!p.joined) {
    if (p.join != 0) return false;
    // Its join would make another job, of which the model knows nothing.
    const bool finished = model_.state() == JobState::kStopped && model_.members().empty();
    if (finished && p.ref.incarnation == 0) {
      p.done = true;
      return false;
    }
    send_join(p);
    return true;
  }
  if (p.push_stands) {
    if (p.push != 0) return false;
    p.push = next_request_;
    request(p.connection, wire::Push{p.ref, p.granted, {}, 1, 0});
    return true;
  }
  if (p.leave_stands) {
    if (p.leave != 0) return false;
    p.leave = next_request_;
    request(p.connection, wire::Leave{p.ref});
    return true;
  }
  if (p.open) {
    if (p.frozen) return false;
    p.push_stands = true;
    p.phase_until = 0;
    return act(p);
  }
  if (!p.begin_stands) {
    p.begin_stands = true;
    p.begin_asked = p.next;
    p.phase_until = 0;
  }
  if (p.begin != 0) return false;
  p.begin = next_request_;
  request(p.connection, wire::Begin{p.ref, p.begin_asked});
  return true;
}

void World::send_join(Process& p) {
  wire::Join join;
  join.job = "train";
  if (random_.one_in(2)) join.policy = options_.rules.text;
  join.name = p.name;
  join.host = p.host;
  join.rank = p.wanted_rank;
  if (random_.one_in(8)) p.data.assign(random_.below(3), static_cast<std::uint8_t>(next_request_));
  join.data = p.data;
  join.notices = p.notices;
  if (p.ref.incarnation != 0) {
    join.rank = static_cast<std::int32_t>(p.ref.rank);
    join.incarnation = p.ref.incarnation;
    join.epoch = p.ref.epoch;
    join.granted = p.granted;
    join.pushed = p.pushed;
    if (p.phase_until > now_) {
      join.phase = "checkpoint";
      join.phase_left_us = p.phase_until - now_;
    }
  }
  p.join = next_request_;
  request(p.connection, std::move(join));
}

// ---- connections

// The processes see the cut at once; the daemon sees it later, and may still get a frame or two
// that were on their way.
void World::cut(ConnectionId connection) {
  if (connection == 0) return;
  for (auto& process : processes_) {
    if (process->connection != connection) continue;
    if (process->joined && random_.one_in(3)) {
      const wire::WorkerRef& ref = process->ref;
      late_.emplace_back(connection, wire::Begin{ref, process->begin_asked});
      if (random_.one_in(2))
        late_.emplace_back(connection, wire::Push{ref, process->granted, {}, 0, 0});
      if (random_.one_in(3))
        late_.emplace_back(connection, wire::CancelBegin{ref, process->begin_asked});
    }
    forget_connection(*process);
  }
  inbox_.erase(connection);
  cut_.push_back(connection);
  note("cut c" + std::to_string(connection));
}

void World::forget_connection(Process& process) {
  process.connection = 0;
  process.joined = false;
  process.join = process.begin = process.push = process.leave = 0;
}

// False: nothing is on its way over this connection.
bool World::deliver(ConnectionId connection) {
  const auto at = inbox_.find(connection);
  if (at == inbox_.end() || at->second.empty()) return false;
  const Frame frame = std::move(at->second.front());
  at->second.pop_front();
  for (auto& process : processes_) {
    if (process->connection == connection && process->alive()) {
      on_frame(*process, frame.first, frame.second);
    }
  }
  return true;
}

// ---- answers

void World::on_frame(Process& p, RequestId id, const wire::Body& body) {
  if (id == 0) {
    if (const auto* notice = std::get_if<wire::FencedNotice>(&body)) {
      if (p.joined && notice->worker == p.ref) p.joined = false, p.begin = p.push = p.leave = 0;
    }
    if (const auto* notice = std::get_if<wire::StopNotice>(&body)) {
      if (p.joined && notice->worker == p.ref) p.done = true;
    }
    return;
  }
  if (id != p.join && id != p.begin && id != p.push && id != p.leave) return;
  if (const auto* error = std::get_if<wire::Error>(&body)) return on_error(p, id, *error);
  p.refusals = 0;
  if (const auto* joined = std::get_if<wire::Joined>(&body)) return on_joined(p, *joined);
  if (const auto* granted = std::get_if<wire::Granted>(&body)) return on_granted(p, *granted);
  if (const auto* pushed = std::get_if<wire::Pushed>(&body)) {
    p.push = 0;
    require(p.push_stands && pushed->iteration == p.granted, "an answer to another push");
    p.push_stands = p.open = false;
    p.pushed = pushed->iteration;
    p.next = pushed->iteration + 1;
    ++p.pushes;
    acknowledged_.insert({p.name, p.host, pushed->iteration, pushed->late});
    return;
  }
  require(std::holds_alternative<wire::Ok>(body) && id == p.leave, "an answer of a wrong type");
  p.done = true;
}

void World::on_joined(Process& p, const wire::Joined& joined) {
  p.join = 0;
  p.joined = true;
  if (p.ref.incarnation != 0) old_refs_.push_back(p.ref);
  const bool first = p.ref.incarnation == 0;
  p.ref = joined.worker;
  if (!first && (p.open || p.push_stands)) return;
  require(first || joined.iteration > p.pushed, "sent back to an iteration that was pushed");
  p.next = p.begin_asked = joined.iteration;
}

void World::on_granted(Process& p, const wire::Granted& granted) {
  p.begin = 0;
  if ((granted.flags & wire::kStepStop) != 0) {
    p.done = true;
    return;
  }
  // I1, as the worker sees it, whatever happened to the daemon in between.
  require(granted.iteration >= p.begin_asked && granted.iteration > p.pushed &&
              granted.iteration >= p.granted,
          p.name + " is granted an iteration that it has behind it");
  if (granted.iteration != p.begin_asked) {
    const std::uint32_t jump = wire::kStepSkip | wire::kStepPull;
    require((granted.flags & jump) == jump, p.name + " jumps without being told");
  }
  p.begin_stands = false;
  p.granted = granted.iteration;
  p.open = true;
}

void World::on_error(Process& p, RequestId id, const wire::Error& error) {
  const bool of_join = id == p.join, of_begin = id == p.begin;
  if (of_join) p.join = 0;
  if (of_begin) p.begin = 0;
  if (id == p.push) p.push = 0;
  if (id == p.leave) p.leave = 0;
  switch (error.status) {
    case Status::kStore:
      return;  // asked again
    case Status::kStopped:
      p.done = true;
      return;
    case Status::kCancelled:
      require(of_begin, "something else than a begin is cancelled");
      return;  // asked again
    case Status::kClosed:
      require(of_begin && p.leave_stands, "something is closed that was not left");
      return;
    case Status::kRankTaken:
      // Our own connection may not be noticed to be gone yet; else somebody has taken the place.
      if (++p.refusals > kRefusalsMax) p.dead = true;
      return;
    case Status::kFenced:
      if (of_join || ++p.refusals > kRefusalsMax) p.dead = true;
      p.joined = false;
      p.begin = p.push = p.leave = 0;
      return;
    default:
      throw Violation("a worker that keeps to the rules is refused: " + error.message);
  }
}

}  // namespace syncd::test
