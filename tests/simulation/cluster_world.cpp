// See cluster_world.h.
#include "cluster_world.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agenda.h"
#include "daemon/core/cluster/leadership.h"
#include "daemon/core/cluster/lease.h"
#include "daemon/core/cluster/shard_log.h"
#include "daemon/core/cluster/take_over.h"
#include "tests/support/model_etcd.h"
#include "tests/support/random.h"

namespace syncd::simulation {
namespace {

using namespace cluster;

constexpr Micros kMillisecond = 1'000;
constexpr Micros kSecond = 1'000'000;
constexpr Micros kLease = 2 * kSecond;
constexpr Micros kTroubleEnds = 40 * kSecond;
constexpr Micros kEnd = 80 * kSecond;
constexpr JobId kJob = 1;
constexpr int kMembers = 3;
constexpr int kClients = 4;
const ShardKeys kKeys("lab", 0);

using Push = std::uint64_t;  // what a client wants recorded, unique

// A record: a push, and bytes without meaning behind it.
std::string record_of(Push push, std::size_t bytes) {
  std::string text(16 + bytes, '.');
  for (std::size_t i = 0; i < 8; ++i) {
    text[i] = static_cast<char>(push >> (8 * i));
    text[8 + i] = static_cast<char>(bytes >> (8 * i));
  }
  return text;
}

std::vector<Push> pushes_of(std::string_view records) {
  std::vector<Push> pushes;
  while (!records.empty()) {
    std::uint64_t push = 0;
    std::uint64_t bytes = 0;
    require(records.size() >= 16, "half a record");
    for (std::size_t i = 0; i < 8; ++i) {
      push |= std::uint64_t{static_cast<std::uint8_t>(records[i])} << (8 * i);
      bytes |= std::uint64_t{static_cast<std::uint8_t>(records[8 + i])} << (8 * i);
    }
    require(records.size() >= 16 + bytes, "half a record");
    records.remove_prefix(16 + bytes);
    pushes.push_back(push);
  }
  return pushes;
}

// One batch, as etcd took it or as a copy has it.
struct Link {
  Tail at;
  Term term;
  std::vector<Push> pushes;
};

// A member's copy: everything up to `base`, then links one by one.
struct Copy {
  Tail base;
  std::vector<Push> history;  // up to base
  std::vector<Link> links;

  Tail stamp() const { return links.empty() ? base : links.back().at; }
  std::vector<Push> all() const {
    std::vector<Push> pushes = history;
    for (const Link& link : links) {
      pushes.insert(pushes.end(), link.pushes.begin(), link.pushes.end());
    }
    return pushes;
  }
};

struct Member {
  std::string name;
  std::uint64_t life = 0;
  bool is_up = true;
  Micros frozen_until = 0;
  Micros cut_off_until = 0;
  // Its clocks: what CLOCK_BOOTTIME missed, how CLOCK_REALTIME was set, and parts in a thousand by
  // which they are fast.
  Micros missed = 0;
  Micros set_by = 0;
  Micros drift = 0;

  Nonce nonces;
  test::LeaseId lease_id = 0;
  std::optional<Lease> lease;
  std::optional<Leadership> leadership;
  std::optional<ShardLog> log;
  bool recovers = false;
  Copy copy;
  // The leader's engine.
  std::map<Push, Ticket> known;  // pushes, and the change that they are in; 0: recovered
  std::map<Ticket, std::vector<Push>> in_change;
  Ticket settled = 0;
  Sequence snapshot_sequence = 0;
  bool has_chosen = false;  // whom it hands over to; it serves on for a while
  bool hands_over = false;  // it serves nobody, and its process ends soon
};

class World {
 public:
  World(std::uint64_t seed, ClusterMistake mistake) : random_(seed), mistake_(mistake) {
    etcd_.apply({{}, cluster::seed(kKeys), {}});
    etcd_.on_change = [this] { on_change(); };
    pauses_ = random_.one_in(2);
    members_.resize(kMembers);
    for (int i = 0; i < kMembers; ++i) {
      Member& m = members_[static_cast<std::size_t>(i)];
      m.name = std::string(1, static_cast<char>('a' + i));
      m.drift = random_.between(-20, 20);
      start(m);
    }
    for (int i = 0; i < kClients; ++i) {
      agenda_.at(random_.between(0, kSecond), [this, i] { push(static_cast<Push>(i) << 32 | 1); });
    }
    expire();
    trouble();
  }

  ClusterFigures run() {
    while (agenda_.now() < kEnd && agenda_.step()) check_grants();
    for (const Micros heard : heard_) {
      require(heard > kEnd - 10 * kSecond, "a client is not heard any more");
    }
    // Each is there once: on_change() lets none come twice.
    for (const Push push : acknowledged_) {
      require(committed_.contains(push), "an acknowledged push is not in the log");
    }
    figures_.acknowledged = acknowledged_.size();
    figures_.entries = chain_.size();
    return figures_;
  }

 private:
  bool in_trouble() const { return agenda_.now() < kTroubleEnds; }
  bool chance(std::uint64_t n) { return in_trouble() && random_.one_in(n); }

  // ---- clocks and processes

  Clocks clocks(const Member& m) const {
    const Micros now = agenda_.now() + agenda_.now() * m.drift / 1000;
    return {now - m.missed, now + m.set_by};
  }

  void start(Member& m) {
    ++m.life;
    m.is_up = true;
    m.has_chosen = m.hands_over = false;
    m.nonces = {random_.next(), 0};
    m.leadership.emplace(kKeys, 0, m.name, m.nonces, 1);
    new_lease(m);
    tick(m, m.life);
  }

  void new_lease(Member& m) {
    m.lease_id = random_.next();
    m.lease.emplace(kLease);
  }

  void stop_leading(Member& m) {
    if (m.log) ++figures_.deposed;
    m.log.reset();
    m.recovers = false;
    m.known.clear();
    m.in_change.clear();
    m.settled = 0;
    m.snapshot_sequence = 0;
  }

  bool serves(const Member& m) const {
    return m.log && m.leadership->state() == Leadership::State::kLeads &&
           m.lease->may_grant(clocks(m)) &&
           (!m.hands_over || mistake_ == ClusterMistake::kServesOn);
  }

  void crash(Member& m) {
    stop_leading(m);
    m.is_up = false;
    ++m.life;
    switch (random_.below(4)) {
      case 0:
        m.copy = {};
        break;
      case 1:  // what was not synced
        m.copy.links.resize(random_.below(m.copy.links.size() + 1));
        break;
      default:
        break;
    }
    agenda_.in(random_.between(kSecond / 10, 4 * kSecond), [this, &m] { start(m); });
  }

  void trouble() {
    if (!in_trouble()) return;
    Member& m = random_.pick(members_);
    const Micros span = random_.between(kSecond / 10, 2 * kLease);
    switch (random_.below(8)) {
      case 0:
        if (m.is_up) crash(m);
        break;
      case 1:  // stopped, or its whole machine paused
        m.frozen_until = agenda_.now() + span;
        if (pauses_ && random_.one_in(2)) m.missed += span;
        break;
      case 2:
        m.cut_off_until = agenda_.now() + span;
        break;
      case 3:
        if (!pauses_) m.set_by += random_.between(-5 * kSecond, kSecond);
        break;
      case 4:
        if (m.leadership && m.is_up) {
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
      default:
        break;
    }
    agenda_.in(random_.between(kSecond / 10, 4 * kSecond), [this] { trouble(); });
  }

  void expire() {
    etcd_.expire(agenda_.now());
    agenda_.in(10 * kMillisecond, [this] { expire(); });
  }

  // Lets a member do something when it runs, in the same life.
  void when_running(Member& m, std::function<void()> action) {
    if (agenda_.now() >= m.frozen_until) return action();
    agenda_.at(m.frozen_until, [this, &m, life = m.life, action = std::move(action)] {
      if (m.life == life && m.is_up) when_running(m, action);
    });
  }

  // ---- network

  Micros delay() {
    return random_.between(kMillisecond / 2, chance(10) ? 300 * kMillisecond : 8 * kMillisecond);
  }
  bool is_cut_off(const Member& m) const { return agenda_.now() < m.cut_off_until; }

  // Carries a request to etcd, and its answer back if that comes within a second.
  void ask(Member& m, std::function<Answer()> request,
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

  void send(Member& m, const Attempt& attempt, bool of_log) {
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

  void keep_alive(Member& m) {
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

  void tick(Member& m, std::uint64_t life) {
    if (m.life != life || !m.is_up) return;
    when_running(m, [this, &m] {
      if (!is_cut_off(m)) watch(m);
      turn(m);
    });
    agenda_.in(random_.between(20 * kMillisecond, 60 * kMillisecond),
               [this, &m, life] { tick(m, life); });
  }

  // What a watch says, and how a copy follows.
  void watch(Member& m) {
    Leadership::View view{etcd_.revision(), {}, {}};
    if (const auto* item = etcd_.find(kKeys.leader())) {
      view.leader = KeyValue{kKeys.leader(), item->value, item->created};
    }
    for (const Member& other : members_) {
      if (!other.is_up || other.name == drained_ || other.leadership->is_unfit(agenda_.now())) {
        continue;
      }
      view.members.push_back(other.name);
      if (other.copy.stamp().index + 5 > chain_.size()) view.ready.push_back(other.name);
    }
    view.pin = wanted_;
    if (const auto* item = etcd_.find(kKeys.successor())) view.successor = item->value;
    m.leadership->on_view(std::move(view), agenda_.now());
    if (m.log && !m.has_chosen) {
      const std::string to = m.leadership->hands_over_to(chance(100), agenda_.now());
      if (!to.empty()) announce(m, to);
    }
    if (m.leadership->state() == Leadership::State::kFollows && random_.one_in(10)) {
      TakeOver read;
      std::string error;
      require(parse_take_over(kKeys, etcd_.apply(take_over_read(kKeys)), read, error), error);
      catch_up(m, read);
    }
  }

  void turn(Member& m) {
    if (m.lease->is_lost()) new_lease(m);
    if (m.lease->is_due(clocks(m))) keep_alive(m);
    const bool may = m.lease->may_grant(clocks(m));
    Leadership& leadership = *m.leadership;
    if (!may && leadership.state() != Leadership::State::kFollows) leadership.depose();
    if (may && !m.hands_over) {
      if (const auto attempt = leadership.next(agenda_.now())) send(m, *attempt, false);
    }
    if (leadership.state() == Leadership::State::kRecovers && !m.recovers) recover(m);
    if (m.log && leadership.state() != Leadership::State::kLeads) stop_leading(m);
    if (!m.log) return;
    settle(m);
    if (m.log && m.log->deposed()) {
      leadership.depose();
      stop_leading(m);
    }
    if (!m.log) return;
    if (random_.one_in(40)) snapshot(m);
    if (random_.one_in(20)) remove_entries(m);
    if (const auto attempt = m.log->next()) send(m, *attempt, true);
  }

  // It tells the other one, perhaps late or in vain, and serves on for a while.
  void announce(Member& m, const std::string& to) {
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
  void hand_over(Member& m, const std::string& to) {
    m.hands_over = true;
    give_away(m, m.life, to, agenda_.now() + kSecond);
  }
  void give_away(Member& m, std::uint64_t life, const std::string& to, Micros give_up_at) {
    if (m.life != life || !m.is_up) return;
    when_running(m, [this, &m, life, to, give_up_at] {
      if (!m.log) return leave(m, 3);  // deposed
      if (!m.in_change.empty() && agenda_.now() < give_up_at) {
        agenda_.in(10 * kMillisecond, [=, this, &m] { give_away(m, life, to, give_up_at); });
        return;
      }
      const Transaction change = m.leadership->hand_over(to);
      const auto request = [this, change, lease = m.lease_id] {
        return etcd_.apply(change, lease);
      };
      const auto is_first = std::make_shared<bool>(true);
      ask(m, request, [this, &m, is_first](const Answer&) {
        if (std::exchange(*is_first, false)) leave(m, 3);
      });
    });
  }
  void leave(Member& m, int tries) {
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

  void recover(Member& m) {
    m.recovers = true;
    const Term term = m.leadership->term();
    agenda_.in(random_.between(0, 200 * kMillisecond), [this, &m, term, life = m.life] {
      if (m.life != life || !m.is_up) return;
      when_running(m, [this, &m, term] {
        m.recovers = false;
        if (m.leadership->state() != Leadership::State::kRecovers || m.leadership->term() != term)
          return;
        const TakeOver read = m.leadership->read();
        const bool works = !chance(6) && catch_up(m, read);
        if (!works) ++figures_.failed;
        if (works) {
          stop_leading(m);
          for (const Push push : m.copy.all()) m.known[push] = 0;
          require(m.copy.stamp() == read.tail, "a leader's copy is not what it recovers");
          m.log.emplace(kKeys, term, m.nonces, read.tail, read.first);
        }
        m.leadership->recovered(term, works, agenda_.now());
        turn(m);
      });
    });
  }

  // False: a snapshot's parts are gone, so that a later pointer is there.
  bool catch_up(Member& m, const TakeOver& read) {
    const CatchUp how = how_to_catch_up(read, m.copy.stamp());
    require(how != CatchUp::kSetBack, "a copy is off the chain");
    if (how == CatchUp::kRebuild) {
      require(read.pointers.size() == 1, "entries are gone, and no snapshot covers them");
      const Pointer& pointer = read.pointers[0].second;
      std::string bytes;
      for (std::uint32_t i = 0; i < pointer.parts; ++i) {
        Part part;
        const auto* item = etcd_.find(kKeys.snapshot_part(kJob, pointer.term, pointer.sequence, i));
        if (item == nullptr) return false;
        require(decode(item->value, part), "a damaged part");
        bytes += part.bytes;
      }
      m.copy = {};
      m.copy.history = pushes_of(bytes);
      require(m.copy.history.size() == pointer.sequence, "a snapshot of another sequence");
      // An entry that it has in part is taken from the log again.
      std::size_t covered = 0;
      for (const Link& link : chain_) {
        if (covered + link.pushes.size() > pointer.sequence) break;
        covered += link.pushes.size();
        m.copy.base = link.at;
      }
      m.copy.history.resize(covered);
      require(m.copy.base.index + 1 >= read.first.index, "a snapshot does not reach to the log");
      ++figures_.rebuilt;
    }
    for (const Entry& entry : read.log) {
      const Index index = read.first.index + static_cast<Index>(&entry - read.log.data());
      if (index != m.copy.stamp().index + 1) continue;
      require(entry.previous == m.copy.stamp().nonce, "an entry follows another one");
      m.copy.links.push_back({{index, entry.nonce}, entry.term, pushes_of(entry.records)});
    }
    check_copy(m.copy);
    return true;
  }

  // It is a range of the chain that ends at its stamp.
  void check_copy(const Copy& copy) const {
    std::vector<Push> pushes;
    for (const Link& link : chain_) {
      if (link.at.index > copy.stamp().index) break;
      pushes.insert(pushes.end(), link.pushes.begin(), link.pushes.end());
    }
    require(copy.all() == pushes, "a copy is no range of the log");
  }

  // Releases what is committed, and writes the copy.
  void settle(Member& m) {
    std::vector<Push> committed;
    for (; m.settled < m.log->committed(); ++m.settled) {
      const std::vector<Push>& pushes = m.in_change[m.settled + 1];
      committed.insert(committed.end(), pushes.begin(), pushes.end());
      m.in_change.erase(m.settled + 1);
    }
    if (m.copy.stamp() != m.log->tail()) {
      require(m.copy.stamp().index + 1 == m.log->tail().index, "the leader's copy skips an entry");
      m.copy.links.push_back({m.log->tail(), m.leadership->term(), committed});
      require(m.log->tail().index <= chain_.size(), "a leader takes for committed what is not");
      const Link& link = chain_[m.log->tail().index - 1];
      require(link.at == m.log->tail() && link.pushes == committed,
              "what is released is not there");
    }
    for (const Push push : committed) {
      m.known[push] = 0;
      acknowledge(push);
    }
  }

  void snapshot(Member& m) {
    std::string bytes;
    std::vector<Push> all = m.copy.all();
    for (Ticket ticket = m.settled + 1; m.in_change.contains(ticket); ++ticket) {
      all.insert(all.end(), m.in_change[ticket].begin(), m.in_change[ticket].end());
    }
    if (all.size() <= m.snapshot_sequence) return;
    m.snapshot_sequence = all.size();
    const std::size_t padding = chance(10) ? 1'000 : 0;
    for (const Push push : all) bytes += record_of(push, padding);
    m.log->add_snapshot(kJob, all.size(), std::move(bytes));
  }

  // Entries that the pointer covers.
  void remove_entries(Member& m) {
    Pointer pointer;
    const auto* item = etcd_.find(kKeys.pointer(kJob));
    if (item == nullptr || !decode(item->value, pointer)) return;
    std::size_t covered = m.copy.history.size();
    Index before = m.copy.base.index + 1;
    for (const Link& link : m.copy.links) {
      if (covered + link.pushes.size() > pointer.sequence) break;
      covered += link.pushes.size();
      before = link.at.index + 1;
    }
    if (before > m.log->first()) ++figures_.removals;
    m.log->remove_before(before);
  }

  // ---- clients

  // Asks until somebody acknowledges it, then for the next one.
  void push(Push wanted) {
    if (acknowledged_.contains(wanted)) {
      agenda_.in(random_.between(0, 50 * kMillisecond), [this, wanted] { push(wanted + 1); });
      return;
    }
    Member& m = random_.pick(members_);
    agenda_.in(delay(), [this, &m, wanted, life = m.life] {
      if (m.life != life || !m.is_up) return;
      when_running(m, [this, &m, wanted] { on_push(m, wanted); });
    });
    agenda_.in(random_.between(20 * kMillisecond, 200 * kMillisecond),
               [this, wanted] { push(wanted); });
  }

  void on_push(Member& m, Push wanted) {
    if (!serves(m)) return;
    const auto at = m.known.find(wanted);
    if (at != m.known.end()) {
      if (at->second == 0) acknowledge(wanted);
      return;
    }
    const bool large = chance(1000);
    if (large) ++figures_.large;
    const Ticket ticket =
        m.log->add({record_of(wanted, large ? kGroupBytesMax + 1 : random_.below(100))});
    m.known[wanted] = ticket;
    m.in_change[ticket] = {wanted};
    turn(m);
  }

  void acknowledge(Push push) {
    require(committed_.contains(push), "a push is acknowledged that is not in the log");
    acknowledged_.insert(push);
    heard_[push >> 32] = agenda_.now();
  }

  // ---- what must hold at every change of etcd, and between

  void on_change() {
    const auto* item = etcd_.find(kKeys.tail());
    Tail tail;
    require(item != nullptr && decode(item->value, tail), "the log has no tail");
    if (const auto* leader = etcd_.find(kKeys.leader())) {
      require(leader->created >= term_, "a leader's term does not rise");
      if (leader->created > term_) {
        ++figures_.terms;
        Leader value;
        require(decode(leader->value, value), "the leader key is damaged");
        if (value.member == std::exchange(successor_, {})) ++figures_.given;
      }
      term_ = leader->created;
    }
    if (const auto* chosen = etcd_.find(kKeys.successor())) successor_ = chosen->value;
    if (tail == (chain_.empty() ? Tail{} : chain_.back().at)) return;
    require(tail.index == chain_.size() + 1, "the log's tail does not follow the last one");
    Entry entry;
    item = etcd_.find(kKeys.entry(tail.index));
    require(item != nullptr && decode(item->value, entry) && entry.nonce == tail.nonce,
            "the log's last entry is not its tail's");
    for (std::uint32_t i = 0; i < entry.parts; ++i) {
      Part part;
      item = etcd_.find(kKeys.part(tail.index, i));
      require(item != nullptr && decode(item->value, part) && part.nonce == entry.nonce,
              "an entry's part is not there");
      entry.records += part.bytes;
    }
    require(chain_.empty() || entry.term >= chain_.back().term, "terms do not rise in the log");
    chain_.push_back({tail, entry.term, pushes_of(entry.records)});
    for (const Push push : chain_.back().pushes) {
      require(committed_.insert(push).second, "a push is committed twice");
    }
  }

  // Who may grant holds the key, so there is one at most; and it has all that is committed, but for
  // its own batch that is under way.
  void check_grants() {
    for (const Member& m : members_) {
      if (!m.is_up || agenda_.now() < m.frozen_until || !serves(m)) continue;
      const auto* leader = etcd_.find(kKeys.leader());
      require(leader != nullptr && leader->created == m.leadership->term().revision,
              m.name + " may grant and does not hold the key");
      const std::size_t known = m.log->tail().index;
      require(chain_.size() == known ||
                  (chain_.size() == known + 1 && chain_.back().term == m.leadership->term()),
              m.name + " may grant and does not know what is committed");
    }
  }

  test::Random random_;
  ClusterMistake mistake_;
  Agenda agenda_;
  test::ModelEtcd etcd_;
  std::vector<Member> members_;
  bool pauses_ = false;  // or clocks are set: a pause after one was set back is seen by neither
  std::set<test::LeaseId> granted_;
  ClusterFigures figures_;

  std::vector<Link> chain_;
  std::set<Push> committed_;
  std::set<Push> acknowledged_;
  std::vector<Micros> heard_ = std::vector<Micros>(kClients);  // when each client last was
  Revision term_ = 0;
  std::string successor_;  // whom the last leader chose
  // By operators; empty: none.
  std::string wanted_;
  std::string drained_;
};

}  // namespace

ClusterFigures run_cluster(std::uint64_t seed, ClusterMistake mistake) {
  return World(seed, mistake).run();
}

}  // namespace syncd::simulation
