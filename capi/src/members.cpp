// See members.h.
#include "members.h"

#include <utility>

namespace syncd::capi {

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

}  // namespace syncd::capi

extern "C" {

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

}  // extern "C"
