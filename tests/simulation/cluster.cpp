// See cluster.h.
#include "cluster.h"

#include <algorithm>
#include <utility>

#include "violation.h"

namespace syncd::simulation {
namespace {

using namespace cluster;

constexpr Micros kMillisecond = 1'000;
constexpr Micros kSecond = 1'000'000;

}  // namespace

Cluster::Cluster(Agenda& agenda, test::Random& random, ClusterMistake mistake)
    : agenda_(agenda), random_(random), mistake_(mistake) {
  etcd_.apply({{}, cluster::seed(keys_), {}});
  etcd_.on_change = [this] { on_change(); };
  pauses_ = random_.one_in(2);
}

void Cluster::start(std::vector<std::unique_ptr<Replica>> replicas) {
  members_.resize(replicas.size());
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& m = members_[i];
    m.name = std::string(1, static_cast<char>('a' + i));
    m.drift = random_.between(-20, 20);
    m.replica = std::move(replicas[i]);
    start(m);
  }
  expire();
  trouble();
}

bool Cluster::may_answer(std::size_t member) const {
  const Member& m = members_[member];
  return m.is_up && leads(m) && may_grant(m);
}
bool Cluster::serves(std::size_t member) const {
  return members_[member].is_up && serves(members_[member]);
}
bool Cluster::holds_key(std::size_t member) const {
  return holds_key(members_[member]);
}

// By the thread that appends.
void Cluster::append(std::size_t member) {
  Member& m = members_[member];
  agenda_.in(random_.between(0, kMillisecond), [this, &m, life = m.life] {
    if (m.life != life || !m.is_up) return;
    when_running(m, [this, &m] { turn(m); });
  });
}

void Cluster::depose(std::size_t member) {
  Member& m = members_[member];
  agenda_.in(0, [this, &m, life = m.life] {
    if (m.life != life || !m.is_up) return;
    stop_leading(m);
    start(m);
  });
}

// ---- clocks and processes

Clocks Cluster::clocks(const Member& m) const {
  const Micros now = agenda_.now() + agenda_.now() * m.drift / 1000;
  return {now - m.missed, now + m.set_by};
}

bool Cluster::may_grant(const Member& m) const {
  return m.lease->may_grant(clocks(m)) || mistake_ == ClusterMistake::kOutlivesLease;
}

bool Cluster::leads(const Member& m) const {
  return m.log && m.leadership->state() == Leadership::State::kLeads;
}

bool Cluster::serves(const Member& m) const {
  return leads(m) && may_grant(m) && (!m.hands_over || mistake_ == ClusterMistake::kServesOn);
}

bool Cluster::holds_key(const Member& m) const {
  const auto* leader = etcd_.find(keys_.leader());
  return leader != nullptr && leader->created == m.leadership->term().revision;
}

void Cluster::start(Member& m) {
  ++m.life;
  m.is_up = true;
  m.has_chosen = m.hands_over = m.recovers = false;
  m.nonces = {random_.next(), 0};
  m.leadership.emplace(keys_, 0, m.name, m.nonces, 1);
  new_lease(m);
  tick(m, m.life);
}

void Cluster::new_lease(Member& m) {
  m.lease_id = random_.next();
  m.lease.emplace(kLease);
}

void Cluster::stop_leading(Member& m) {
  m.recovers = false;
  if (!m.log) return;
  ++figures_.deposed;
  m.replica->stop_leading();
  m.log.reset();
}

void Cluster::crash(Member& m) {
  stop_leading(m);
  m.is_up = false;
  ++m.life;
  const std::uint64_t takes = random_.below(4);
  if (takes < 2) m.replica->lose_copy(takes == 0);
  agenda_.in(random_.between(kSecond / 10, 4 * kSecond), [this, &m] { start(m); });
}

void Cluster::trouble() {
  if (is_calm_) return;
  // What happens to the one that leads matters most.
  const auto leader =
      std::ranges::find_if(members_, [this](const Member& m) { return m.is_up && serves(m); });
  Member& m = leader != members_.end() && random_.one_in(2) ? *leader : random_.pick(members_);
  const Micros span = random_.between(kSecond / 10, 3 * kLease);
  switch (random_.below(9)) {
    case 0:
      if (m.is_up) crash(m);
      break;
    case 1:  // stopped, or its whole machine paused
      m.frozen_until = agenda_.now() + span;
      m.replica->freeze(m.frozen_until);
      if (pauses_ && random_.one_in(2)) m.missed += span;
      break;
    case 2:
      m.cut_off_until = agenda_.now() + span;
      break;
    case 3:
      if (!pauses_) m.set_by += random_.between(-5 * kSecond, kSecond);
      break;
    case 4:
      if (m.is_up) {
        m.leadership->give_up();
        stop_leading(m);
      }
      break;
    case 5:  // an operator
      wanted_ = random_.one_in(2) ? m.name : std::string();
      break;
    case 6:
      drained_ = random_.one_in(2) ? m.name : std::string();
      break;
    case 7:
      m.replica->cut_off(agenda_.now() + span);
      break;
    default:
      break;
  }
  agenda_.in(random_.between(kSecond / 10, 4 * kSecond), [this] { trouble(); });
}

void Cluster::expire() {
  etcd_.expire(agenda_.now());
  agenda_.in(10 * kMillisecond, [this] { expire(); });
}

void Cluster::when_running(Member& m, std::function<void()> action) {
  if (agenda_.now() >= m.frozen_until) return action();
  // Threads wake up in any order.
  const Micros wakes_at = m.frozen_until + random_.between(0, 5 * kMillisecond);
  agenda_.at(wakes_at, [this, &m, life = m.life, action = std::move(action)] {
    if (m.life == life && m.is_up) when_running(m, action);
  });
}

// ---- network

Micros Cluster::delay() {
  return random_.between(kMillisecond / 2, chance(10) ? 300 * kMillisecond : 8 * kMillisecond);
}

// Carries a request to etcd, and its answer back if that comes within a second.
void Cluster::ask(Member& m, std::function<Answer()> request,
                  std::function<void(const Answer&)> answered) {
  const std::uint64_t life = m.life;
  const auto heard = std::make_shared<bool>(false);
  const auto answer = [this, &m, life, heard, answered](const Answer& a, Micros in) {
    agenda_.in(in, [this, &m, life, heard, answered, a] {
      if (m.life != life || !m.is_up) return;
      when_running(m, [heard, answered, a] {
        const bool is_first = !std::exchange(*heard, true);
        if (is_first || a.kind != Answer::Kind::kUnknown) answered(a);
      });
    });
  };
  answer({}, kSecond);
  const bool lost = is_cut_off(m) || chance(20);
  if (lost && !random_.one_in(2)) return;
  Micros there = delay();
  if (lost || chance(30)) {  // it hangs in a follower that is stopped
    there += random_.between(kSecond, 15 * kSecond);
    agenda_.in(there, [this] { ++figures_.late; });
  }
  agenda_.in(there, [this, &m, request, answer] {
    Answer a = request();
    if (is_cut_off(m) || chance(20)) return;
    if (chance(20)) a = {};  // an error, of a transaction that happened
    answer(a, delay());
    if (chance(20)) answer(a, delay());
  });
}

void Cluster::send(Member& m, const Attempt& attempt, bool of_log) {
  Transaction transaction = attempt.transaction;
  if (of_log && mistake_ == ClusterMistake::kSkipsTheFence) {
    transaction.compares.erase(transaction.compares.begin());
  }
  if (of_log && mistake_ == ClusterMistake::kSkipsTheTail) transaction.compares.resize(1);
  const auto request = [this, transaction = std::move(transaction), lease = m.lease_id] {
    return etcd_.apply(transaction, lease);
  };
  // An answer is for the log that asked, not for the next one.
  const Term term = m.leadership->term();
  ask(m, request, [this, &m, term, number = attempt.number, of_log](const Answer& answer) {
    require(answer.kind != Answer::Kind::kRefused, "etcd refuses a transaction for good");
    if (answer.kind == Answer::Kind::kUnknown) ++figures_.unknown;
    if (!of_log) m.leadership->on_answer(number, answer, agenda_.now());
    if (of_log && m.log && m.leadership->term() == term) m.log->on_answer(number, answer);
    turn(m);
  });
}

void Cluster::keep_alive(Member& m) {
  const auto number = m.lease->send(clocks(m));
  if (!number) return;
  const test::LeaseId id = m.lease_id;
  const auto ttl = std::make_shared<Micros>(0);
  const auto is_over = std::make_shared<bool>(false);
  const auto request = [this, id, ttl]() -> Answer {
    const bool is_new = granted_.insert(id).second;
    if (is_new) etcd_.grant(id, kLease, agenda_.now());
    *ttl = is_new ? kLease : etcd_.keep_alive(id, agenda_.now());
    return {Answer::Kind::kThen, etcd_.revision()};
  };
  ask(m, request, [this, &m, id, number, ttl, is_over](const Answer& answer) {
    if (m.lease_id != id) return;
    const bool is_first = !std::exchange(*is_over, true);
    if (answer.kind == Answer::Kind::kUnknown) {
      if (is_first) m.lease->abandon();
    } else if (is_first && mistake_ == ClusterMistake::kGrantsTooLong) {
      m.lease->abandon();
      m.lease->on_answer(*m.lease->send(clocks(m)), *ttl);
    } else {
      m.lease->on_answer(*number, *ttl);
    }
    turn(m);
  });
}

// ---- a member

void Cluster::tick(Member& m, std::uint64_t life) {
  if (m.life != life || !m.is_up) return;
  when_running(m, [this, &m] {
    if (!is_cut_off(m)) watch(m);
    turn(m);
  });
  agenda_.in(random_.between(20 * kMillisecond, 60 * kMillisecond),
             [this, &m, life] { tick(m, life); });
}

// What a watch says, and how a copy follows.
void Cluster::watch(Member& m) {
  Leadership::View view{etcd_.revision(), {}, {}};
  if (const auto* item = etcd_.find(keys_.leader())) {
    view.leader = KeyValue{keys_.leader(), item->value, item->created};
  }
  for (const Member& other : members_) {
    if (!other.is_up || other.name == drained_ || other.leadership->is_unfit(agenda_.now())) {
      continue;
    }
    view.members.push_back(other.name);
    if (other.replica->stamp().index + 5 > chain_.size()) view.ready.push_back(other.name);
  }
  view.pin = wanted_;
  if (const auto* item = etcd_.find(keys_.successor())) view.successor = item->value;
  m.leadership->on_view(std::move(view), agenda_.now());
  if (m.log && !m.has_chosen) {
    const std::string to = m.leadership->hands_over_to(chance(100), agenda_.now());
    if (!to.empty()) announce(m, to);
  }
  if (m.leadership->state() == Leadership::State::kFollows && random_.one_in(10)) {
    const Index from = m.replica->stamp().index + 1;
    TakeOver read;
    std::string error;
    require(parse_take_over(keys_, etcd_.apply(take_over_read(keys_, from)), read, error, from),
            error);
    m.replica->catch_up(read);
  }
}

void Cluster::turn(Member& m) {
  if (m.lease->is_lost()) new_lease(m);
  if (m.lease->is_due(clocks(m))) keep_alive(m);
  const bool may = may_grant(m);
  Leadership& leadership = *m.leadership;
  if (!may && leadership.state() != Leadership::State::kFollows) leadership.depose();
  if (may && !m.hands_over) {
    leadership.set_copied(m.replica->stamp().index);
    if (const auto attempt = leadership.next(agenda_.now())) send(m, *attempt, false);
  }
  if (leadership.state() == Leadership::State::kRecovers && !m.recovers) recover(m);
  if (m.log && leadership.state() != Leadership::State::kLeads) stop_leading(m);
  if (!m.log) return;
  m.replica->settle();
  if (m.log->deposed()) {
    leadership.depose();
    stop_leading(m);
    return;
  }
  if (random_.one_in(20)) {
    const Index before = m.replica->covered_before();
    if (before > m.log->first()) ++figures_.removals;
    m.log->remove_before(before);
  }
  if (const auto attempt = m.log->next()) send(m, *attempt, true);
}

// It tells the other one, perhaps late or in vain, and serves on for a while.
void Cluster::announce(Member& m, const std::string& to) {
  m.has_chosen = true;
  const Transaction change = m.leadership->announce(to);
  ask(
      m, [this, change, lease = m.lease_id] { return etcd_.apply(change, lease); },
      [](const Answer&) {});
  agenda_.in(random_.between(0, kSecond), [this, &m, life = m.life, to] {
    if (m.life == life && m.is_up) hand_over(m, to);
  });
}

// It stops serving, and once everything that it took is appended it gives the key up and the
// process starts anew. If that does not happen in time it leaves all the same.
void Cluster::hand_over(Member& m, const std::string& to) {
  m.hands_over = true;
  if (m.log) m.replica->stop_serving();
  give_away(m, m.life, to, agenda_.now() + kSecond);
}

void Cluster::give_away(Member& m, std::uint64_t life, const std::string& to, Micros give_up_at) {
  if (m.life != life || !m.is_up) return;
  when_running(m, [this, &m, life, to, give_up_at] {
    if (!m.log) return leave(m, 3);  // deposed
    if (!m.replica->is_idle() && agenda_.now() < give_up_at) {
      agenda_.in(10 * kMillisecond, [=, this, &m] { give_away(m, life, to, give_up_at); });
      return;
    }
    if (mistake_ != ClusterMistake::kServesOn) stop_leading(m);
    const Transaction change = m.leadership->hand_over(to);
    const auto request = [this, change, lease = m.lease_id] { return etcd_.apply(change, lease); };
    const auto is_first = std::make_shared<bool>(true);
    ask(m, request, [this, &m, is_first](const Answer&) {
      if (std::exchange(*is_first, false)) leave(m, 3);
    });
  });
}

void Cluster::leave(Member& m, int tries) {
  const auto is_first = std::make_shared<bool>(true);
  const auto request = [this, id = m.lease_id]() -> Answer {
    etcd_.revoke(id);
    return {Answer::Kind::kThen, etcd_.revision()};
  };
  ask(m, request, [this, &m, is_first, tries](const Answer& answer) {
    if (!std::exchange(*is_first, false)) return;
    if (answer.kind == Answer::Kind::kUnknown && tries > 1) return leave(m, tries - 1);
    stop_leading(m);
    start(m);
  });
}

void Cluster::recover(Member& m) {
  m.recovers = true;
  const Term term = m.leadership->term();
  agenda_.in(random_.between(0, 200 * kMillisecond), [this, &m, term, life = m.life] {
    if (m.life != life || !m.is_up) return;
    when_running(m, [this, &m, term] {
      m.recovers = false;
      if (m.leadership->state() != Leadership::State::kRecovers || m.leadership->term() != term)
        return;
      if (!may_grant(m)) return turn(m);  // another one may lead since
      const TakeOver read = m.leadership->read();
      const bool works = !chance(6) && m.replica->catch_up(read);
      if (!works) ++figures_.failed;
      m.leadership->recovered(term, works, agenda_.now());
      if (works) {
        stop_leading(m);
        require(m.replica->stamp() == read.tail, "a leader's copy is not what it recovers");
        m.log.emplace(keys_, term, m.nonces, read.tail, read.there);
        m.replica->lead(*m.log, read);
      }
      turn(m);
    });
  });
}

// ---- what must hold at every change of etcd, and between

void Cluster::on_change() {
  const auto* item = etcd_.find(keys_.tail());
  Tail tail;
  require(item != nullptr && decode(item->value, tail), "the log has no tail");
  if (const auto* leader = etcd_.find(keys_.leader())) {
    require(leader->created >= term_, "a leader's term does not rise");
    if (leader->created > term_) {
      ++figures_.terms;
      Leader value;
      require(decode(leader->value, value), "the leader key is damaged");
      if (value.member == std::exchange(successor_, {})) ++figures_.given;
    }
    term_ = leader->created;
  }
  if (const auto* chosen = etcd_.find(keys_.successor())) successor_ = chosen->value;
  if (tail == (chain_.empty() ? Tail{} : chain_.back().at)) return;
  require(tail.index == chain_.size() + 1, "the log's tail does not follow the last one");
  Entry entry;
  item = etcd_.find(keys_.entry(tail.index));
  require(item != nullptr && decode(item->value, entry) && entry.nonce == tail.nonce,
          "the log's last entry is not its tail's");
  for (std::uint32_t i = 0; i < entry.parts; ++i) {
    Part part;
    item = etcd_.find(keys_.part(tail.index, i));
    require(item != nullptr && decode(item->value, part) && part.nonce == entry.nonce,
            "an entry's part is not there");
    entry.records += part.bytes;
  }
  require(chain_.empty() || entry.term >= chain_.back().term, "terms do not rise in the log");
  chain_.push_back({tail, entry.term, std::move(entry.records)});
  ++figures_.entries;
  on_entry(chain_.back());
}

void Cluster::check_grants() const {
  for (const Member& m : members_) {
    if (!m.is_up || agenda_.now() < m.frozen_until || !serves(m)) continue;
    if (!holds_key(m)) throw Violation(m.name + " may grant and does not hold the key");
    const std::size_t known = m.log->tail().index;
    const bool has_all = chain_.size() == known ||
                         (chain_.size() == known + 1 && chain_.back().term == m.leadership->term());
    if (!has_all) throw Violation(m.name + " may grant and does not know what is committed");
  }
}

bool fetch_snapshot(const Cluster& cluster, JobId job, const Pointer& pointer, std::string& bytes) {
  bytes.clear();
  for (std::uint32_t i = 0; i < pointer.parts; ++i) {
    Part part;
    const auto* item =
        cluster.etcd().find(cluster.keys().snapshot_part(job, pointer.term, pointer.sequence, i));
    if (item == nullptr) return false;
    require(decode(item->value, part), "a damaged part");
    bytes += part.bytes;
  }
  return true;
}

}  // namespace syncd::simulation
