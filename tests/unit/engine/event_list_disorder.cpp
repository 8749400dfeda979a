// EventList: what processes do against the rules, what operators ask for, and what breaks.
#include <algorithm>
#include <cmath>
#include <string>

#include "event_list.h"

namespace syncd::test {

void EventList::disorder() {
  const std::uint64_t what = random_.below(20);
  if (what < 12) return disturb(any_process());
  if (what < 17) return operate();
  trouble();
}

void EventList::disturb(Process& p) {
  switch (random_.below(12)) {
    case 0:
      return cut(p.connection);
    case 1:  // it dies, or says goodbye
      if (p.joined && p.pending == 0 && random_.one_in(2)) {
        return send(p, Ask::kLeave, wire::Leave{p.ref});
      }
      p.gone = true;
      if (random_.one_in(2)) cut(p.connection);
      return;
    case 2:  // a process that had gone starts again, or a new one comes
      if (p.gone) {
        forget_connection(p);
        p.gone = false;
        p.errors = 0;
        p.at = At::kBegin;
        p.last = 1'000'000;
        if (random_.one_in(2)) p.ref = {};
      } else if (processes_.size() < 14) {
        add_process(p.job);
      }
      return;
    case 3:  // it computes, or sleeps, for long
      p.busy_until = now_ + random_.between(0, silence_ / 3);
      return;
    case 4:
      return send_stray(p);
    case 5:
    case 6:
      return repeat(p);
    case 7:
    case 8:
      return ask_about(p);
    case 9:
      return announce_phase(p);
    case 10:
      if (p.joined) request(p.connection, wire::CancelBegin{p.ref, p.next});
      return;
    default:
      if (p.joined && p.pending == 0 && !p.gone) join(p);  // it lost its place in its own eyes
  }
}

void EventList::cut(ConnectionId connection) {
  if (connection == 0) return;
  for (auto& process : processes_) {
    if (process->connection != connection) continue;
    forget_connection(*process);
    process->busy_until = now_ + (random_.one_in(3) ? 0 : random_.between(0, 4'000'000));
  }
  step(Disconnected{connection, "cut"});
}

// A request with something wrong in it. The process does not see the answer.
void EventList::send_stray(Process& p) {
  wire::WorkerRef ref = p.ref;
  ConnectionId connection = p.connection;
  switch (random_.below(6)) {
    case 0:
      ref = p.last_ref;
      break;
    case 1:
      ref.epoch += 1;
      break;
    case 2:
      ref.rank += static_cast<std::uint32_t>(random_.below(40));
      break;
    case 3:
      ref.job += 1;
      break;
    case 4:
      connection = p.last_connection;
      break;
    default:
      break;
  }
  const Iteration k = p.granted + random_.between(-3, 3);
  switch (random_.below(10)) {
    case 0:
      request(connection, wire::Begin{ref, k});
      return;
    case 1:
    case 2: {
      wire::Push push{ref, k, {}, 7, 8};
      if (random_.one_in(4)) push.loss = HUGE_VAL;
      request(connection, push);
      return;
    }
    case 3:
      request(connection, wire::Restarted{ref, k});
      return;
    case 4:
      request(connection, wire::Targets{ref, k});
      return;
    case 5:
      request(connection, wire::Collect{ref, k});
      return;
    case 6:
      request(connection, wire::Consumed{ref, k});
      return;
    case 7:
      request(connection, wire::Leave{ref});
      return;
    case 8:
      request(connection, wire::HeartbeatAck{});  // the engine serves no such thing
      return;
    default: {
      wire::Join join;
      join.job = jobs_[p.job].spec.name;
      join.name = p.name;
      join.host = p.host;
      join.rank = static_cast<std::int32_t>(random_.between(-1, 8));
      join.policy = random_.one_in(2) ? "ssp:9" : "no_such_policy";
      if (random_.one_in(2)) join.policy.clear();
      join.world_size = static_cast<std::uint32_t>(random_.below(9));
      if (random_.one_in(3)) join.name.clear();
      if (random_.one_in(2)) {
        join.incarnation = ref.incarnation;
        join.epoch = ref.epoch + random_.below(2);
        join.granted = join.pushed = k;
      }
      request(connection, std::move(join));
    }
  }
}

// A client sends a request again when it has not seen the answer.
void EventList::repeat(Process& p) {
  if (!p.joined) return;
  if (p.pending != 0) {
    if (p.ask == Ask::kBegin) send(p, Ask::kBegin, wire::Begin{p.ref, p.next});
    if (p.ask == Ask::kTargets) send(p, Ask::kTargets, wire::Targets{p.ref, p.granted});
    if (p.ask == Ask::kCollect) send(p, Ask::kCollect, wire::Collect{p.ref, p.granted});
    return;
  }
  switch (random_.below(6)) {
    case 0:
      request(p.connection, wire::Begin{p.ref, p.granted});
      return;
    case 1:
      request(p.connection, wire::Restarted{p.ref, p.granted});
      return;
    case 2:
      request(p.connection, wire::Consumed{p.ref, p.consumed});
      return;
    default:
      request(p.connection, wire::Push{p.ref, p.pushed, {}, 1, 2});
  }
}

void EventList::ask_about(Process& p) {
  if (!p.joined && !random_.one_in(4)) return;
  const auto first = static_cast<std::uint32_t>(random_.one_in(2) ? 0 : random_.below(6));
  switch (random_.below(4)) {
    case 0:
      request(p.connection, wire::MembersRequest{p.ref, first});
      return;
    case 1:
      request(next_connection_++,
              wire::WorkersRequest{jobs_[p.job].spec.name, first, random_.one_in(2)});
      return;
    default:
      request(p.connection, wire::Explain{p.ref});
  }
}

void EventList::announce_phase(Process& p) {
  if (!p.joined) return;
  const bool begins = !random_.one_in(4);
  const Micros lease = random_.one_in(10) ? -1 : random_.between(1'000, 20'000'000);
  p.phase_until = begins ? now_ + lease : 0;
  if (begins) p.busy_until = now_ + random_.between(0, 25'000'000);
  request(p.connection, wire::Phase{p.ref, begins ? "checkpoint" : "", begins ? lease : 0});
}

void EventList::manage(const Process& p) {
  std::vector<wire::WorkerAction> actions{wire::WorkerAction::kDrain, wire::WorkerAction::kKick,
                                          wire::WorkerAction::kLease, wire::WorkerAction::kLease};
  wire::ManageWorkerRequest manage;
  manage.job = jobs_[p.job].spec.name;
  manage.worker = random_.one_in(2)   ? p.name
                  : random_.one_in(4) ? "nobody"
                                      : std::to_string(random_.below(6));
  manage.action = random_.pick(actions);
  if (manage.action == wire::WorkerAction::kLease) {
    manage.text = "evaluation";
    manage.lease_us = random_.between(0, 10'000'000);
  } else if (random_.one_in(2)) {
    manage.text = "its host goes away";
  }
  request(next_connection_++, std::move(manage));
}

void EventList::operate() {
  JobToRun& job = any_job();
  switch (random_.below(16)) {
    case 0:
    case 1:
      request(next_connection_++, wire::JobsRequest{});
      return;
    case 2:
    case 3:
    case 4:
    case 5:
      return manage(any_process());
    case 6:
      request(next_connection_++,
              wire::CreateJobRequest{random_.one_in(2) ? job.spec.name : "spare", job.spec.policy,
                                     static_cast<std::uint32_t>(random_.between(0, 4)),
                                     static_cast<std::uint32_t>(random_.between(0, 5))});
      return;
    case 7:
      if (!random_.one_in(2)) return;
      request(next_connection_++, wire::StopJobRequest{random_.one_in(6) ? "spare" : job.spec.name,
                                                       random_.one_in(2) ? "enough" : ""});
      return;
    default: {
      std::vector<const char*> policies{"asp",
                                        "bsp",
                                        "bsp:2",
                                        "bsp:1,backup=1",
                                        "ssp:1",
                                        "ssp:4",
                                        "dssp:1-4",
                                        "elastic_bsp:3",
                                        "elastic_bsp:5,ewma,objective=rate",
                                        "specsync+asp",
                                        "specsync:fixed,20,0.2+ssp:2",
                                        "naive_wait:10+bsp",
                                        "hop:ring",
                                        "ssp:x"};
      std::string policy = random_.pick(policies);
      // A decentralized job can have no other.
      if (!switches_ || (job.peers && !random_.one_in(8))) return;
      request(next_connection_++, wire::SetPolicyRequest{job.spec.name, std::move(policy)});
    }
  }
}

void EventList::trouble() {
  switch (random_.below(10)) {
    case 0:
    case 1:
    case 2:
      store_down_ = static_cast<int>(random_.between(2, 12));
      return step(StoreState{false, "the disk is full"});
    case 3:
    case 4:
    case 5:
      return restart(0);
    case 6:
      return restart(random_.below(6));
    case 7:
    case 8: {
      const Micros from = now_ - random_.between(0, 3'000'000);
      const std::int64_t span[] = {from, now_};
      begin_text("the store stood");
      form_.add_event("stood", span, now_);
      count("event", "stood");
      engine_->add_store_stall(from, now_);
      return;
    }
    default:
      if (!random_.one_in(2)) return;
      shut_down_ = true;
      step(Shutdown{"it is told to"});
  }
}

}  // namespace syncd::test
