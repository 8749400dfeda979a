// See answers.h.
#include "answers.h"

#include <utility>

namespace syncd::capi {

static_assert(sizeof(void*) != 8 || sizeof(syncd_waited_for) == 48, "its layout never changes");

std::unique_ptr<syncd_explanation> make_explanation(Explanation given) {
  auto made = std::make_unique<syncd_explanation>();
  made->explanation = std::move(given);
  made->text = to_text(made->explanation);
  for (const WaitedFor& other : made->explanation.workers) {
    made->workers.push_back({static_cast<std::int32_t>(other.rank), 0, other.clock,
                             other.last_push_age_us, other.name.c_str(), other.host.c_str(),
                             other.state.c_str()});
  }
  return made;
}

static_assert(sizeof(void*) != 8 || sizeof(syncd_member) == 48, "its layout never changes");
static_assert(SYNCD_MEMBER_ACTIVE == static_cast<int>(wire::MemberState::kActive));
static_assert(SYNCD_MEMBER_DISCONNECTED == static_cast<int>(wire::MemberState::kDisconnected));
static_assert(SYNCD_MEMBER_LEFT == static_cast<int>(wire::MemberState::kLeft));
static_assert(SYNCD_MEMBER_LOST == static_cast<int>(wire::MemberState::kLost));

std::unique_ptr<syncd_members> make_members(client::MembersResult given) {
  auto made = std::make_unique<syncd_members>();
  made->given = std::move(given);
  made->list.reserve(made->given.members.size());
  for (const wire::MemberStatus& member : made->given.members) {
    made->list.push_back({static_cast<std::int32_t>(member.rank),
                          static_cast<std::int32_t>(member.state), member.clock,
                          member.name.c_str(), member.host.c_str(),
                          member.data.empty() ? nullptr : member.data.data(), member.data.size()});
  }
  return made;
}

static_assert(sizeof(void*) != 8 || sizeof(syncd_view_member) == 40, "its layout never changes");

std::unique_ptr<syncd_view> make_view(client::ViewResult given) {
  auto made = std::make_unique<syncd_view>();
  made->given = std::move(given);
  made->list.reserve(made->given.members.size());
  for (const wire::ViewMember& member : made->given.members) {
    made->list.push_back({member.rank, 0, member.name.c_str(), member.host.c_str(),
                          member.data.empty() ? nullptr : member.data.data(), member.data.size()});
  }
  return made;
}

static_assert(sizeof(void*) != 8 || sizeof(syncd_checkpoint_shard) == 24,
              "its layout never changes");

std::unique_ptr<syncd_checkpoint> make_checkpoint(wire::LatestCheckpointReply given) {
  auto made = std::make_unique<syncd_checkpoint>();
  made->given = std::move(given);
  made->list.reserve(made->given.saved.size());
  for (const wire::CheckpointShard& shard : made->given.saved) {
    made->list.push_back({shard.shard, static_cast<std::int32_t>(shard.rank), shard.iteration,
                          shard.location.c_str()});
  }
  return made;
}

}  // namespace syncd::capi

extern "C" {

uint64_t syncd_checkpoint_number(const syncd_checkpoint* checkpoint) {
  return checkpoint != nullptr ? checkpoint->given.number : 0;
}

uint64_t syncd_checkpoint_epoch(const syncd_checkpoint* checkpoint) {
  return checkpoint != nullptr ? checkpoint->given.epoch : 0;
}

int64_t syncd_checkpoint_iteration(const syncd_checkpoint* checkpoint) {
  return checkpoint != nullptr && checkpoint->given.number != 0 ? checkpoint->given.iteration : -1;
}

int64_t syncd_checkpoint_completed_us(const syncd_checkpoint* checkpoint) {
  return checkpoint != nullptr ? checkpoint->given.completed_us : 0;
}

uint32_t syncd_checkpoint_shards(const syncd_checkpoint* checkpoint) {
  return checkpoint != nullptr ? checkpoint->given.shards : 0;
}

size_t syncd_checkpoint_list(const syncd_checkpoint* checkpoint,
                             const syncd_checkpoint_shard** list) {
  const size_t count = checkpoint != nullptr ? checkpoint->list.size() : 0;
  if (list != nullptr) *list = count > 0 ? checkpoint->list.data() : nullptr;
  return count;
}

uint64_t syncd_checkpoint_open(const syncd_checkpoint* checkpoint) {
  return checkpoint != nullptr ? checkpoint->given.open : 0;
}

uint64_t syncd_checkpoint_closed(const syncd_checkpoint* checkpoint) {
  return checkpoint != nullptr ? checkpoint->given.closed : 0;
}

const char* syncd_checkpoint_closed_reason(const syncd_checkpoint* checkpoint) {
  return checkpoint != nullptr ? checkpoint->given.closed_reason.c_str() : "";
}

void syncd_checkpoint_free(syncd_checkpoint* checkpoint) {
  delete checkpoint;
}

const char* syncd_explanation_text(const syncd_explanation* explanation) {
  return explanation != nullptr ? explanation->text.c_str() : "";
}

const char* syncd_explanation_rule(const syncd_explanation* explanation) {
  return explanation != nullptr ? explanation->explanation.rule.c_str() : "";
}

int64_t syncd_explanation_iteration(const syncd_explanation* explanation) {
  return explanation != nullptr ? explanation->explanation.iteration : -1;
}

int64_t syncd_explanation_waiting_us(const syncd_explanation* explanation) {
  return explanation != nullptr ? explanation->explanation.waiting_us : 0;
}

const char* syncd_explanation_ranks(const syncd_explanation* explanation) {
  return explanation != nullptr ? explanation->explanation.ranks.c_str() : "";
}

uint32_t syncd_explanation_waited_for_count(const syncd_explanation* explanation) {
  return explanation != nullptr ? explanation->explanation.waited_for_count : 0;
}

size_t syncd_explanation_workers(const syncd_explanation* explanation,
                                 const syncd_waited_for** workers) {
  const size_t count = explanation != nullptr ? explanation->workers.size() : 0;
  if (workers != nullptr) *workers = count > 0 ? explanation->workers.data() : nullptr;
  return count;
}

void syncd_explanation_free(syncd_explanation* explanation) {
  delete explanation;
}

uint64_t syncd_members_version(const syncd_members* members) {
  return members != nullptr ? members->given.version : 0;
}

size_t syncd_members_list(const syncd_members* members, const syncd_member** list) {
  const size_t count = members != nullptr ? members->list.size() : 0;
  if (list != nullptr) *list = count > 0 ? members->list.data() : nullptr;
  return count;
}

void syncd_members_free(syncd_members* members) {
  delete members;
}

uint64_t syncd_view_number(const syncd_view* view) {
  return view != nullptr ? view->given.view : 0;
}

const char* syncd_view_reason(const syncd_view* view) {
  return view != nullptr ? view->given.reason.c_str() : "";
}

size_t syncd_view_list(const syncd_view* view, const syncd_view_member** list) {
  const size_t count = view != nullptr ? view->list.size() : 0;
  if (list != nullptr) *list = count > 0 ? view->list.data() : nullptr;
  return count;
}

void syncd_view_free(syncd_view* view) {
  delete view;
}

}  // extern "C"
