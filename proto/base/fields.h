// Which fields a plain struct has, said once. The codecs, JSON and the names of messages are made
// from these lists. A list names the fields in the order of the schema, by their names there:
//
//   SYNCD_FIELDS(Begin, worker, iteration)
//
// The list is in the struct's namespace. Where a field is not stored as its type and its default
// in the struct suggest, one of the templates below is specialized for it. fields_test.cpp compares
// the lists with the schemas. No FlatBuffers here, no thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace syncd {

// How FlatBuffers lays out a type: a table whose fields are written by size, as flatc's functions
// do it, or in the order of the list; or a struct, which lies within its owner as it does in
// memory.
enum class Layout { kBySize, kInOrder, kInline };
template <class T>
inline constexpr Layout kLayout = Layout::kBySize;

template <class T>
struct ItemOf;
template <class T>
struct ItemOf<std::vector<T>> {
  using type = T;
};
template <class T>
struct ItemOf<std::optional<T>> {
  using type = T;
};

template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

template <class T, class Owner>
Owner owner_of(T Owner::*);
template <class T, class Owner>
T type_of(T Owner::*);

template <auto Member>
using MemberOwner = decltype(owner_of(Member));
template <auto Member>
using MemberType = decltype(type_of(Member));

// What a reader finds where the field is absent, and a writer leaves out. (Not constexpr: clang 14
// does not evaluate an empty std::string.)
template <auto Member>
inline const auto kAbsent = MemberOwner<Member>{}.*Member;
// The number that is stored.
template <auto Member>
struct StoredAs {
  using type = MemberType<Member>;
};
// A text or a list of bytes that is empty is left out; another empty list is written.
template <auto Member>
inline constexpr bool kWrittenEmpty =
    kIsVector<MemberType<Member>> && !std::is_same_v<MemberType<Member>, std::vector<std::uint8_t>>;
// Its contents are written after those of the other fields.
template <auto Member>
inline constexpr bool kContentsLast = false;

template <std::size_t N>
struct FieldName {
  consteval FieldName(const char (&from)[N]) { std::copy_n(from, N, text); }
  constexpr operator std::string_view() const { return {text, N - 1}; }
  char text[N];
};

template <FieldName Name, auto Member>
struct Field {
  static constexpr std::string_view name = Name;
  static constexpr auto member = Member;
  using Owner = MemberOwner<Member>;
  using Type = MemberType<Member>;
};

template <FieldName Name, class... F>
struct FieldList {
  static constexpr std::string_view name = Name;
  static constexpr std::size_t count = sizeof...(F);
  template <std::size_t I>
  using At = std::tuple_element_t<I, std::tuple<F...>>;
};

// The list of T. A type without one does not compile here.
template <class T>
using FieldsOf = decltype(fields_of(static_cast<const T*>(nullptr)));
template <class T>
concept HasFields = requires {
  typename FieldsOf<T>;
};

// What a loop over fields costs if it stays a function: more than the fields.
#define SYNCD_INLINE __attribute__((always_inline))

// Calls visit(field, value) for each field of `object`, in order.
template <class T, class Visit>
SYNCD_INLINE inline void for_each_field(T& object, const Visit& visit) {
  using List = FieldsOf<std::remove_const_t<T>>;
  [&]<std::size_t... I>(std::index_sequence<I...>) SYNCD_INLINE {
    (visit(typename List::template At<I>{}, object.*(List::template At<I>::member)), ...);
  }
  (std::make_index_sequence<List::count>{});
}

}  // namespace syncd

// Macros reach 64 names: more than the longest list has.
#define SYNCD_EXPAND(...) \
  SYNCD_EXPAND_3(SYNCD_EXPAND_3(SYNCD_EXPAND_3(SYNCD_EXPAND_3(__VA_ARGS__))))
#define SYNCD_EXPAND_3(...) \
  SYNCD_EXPAND_2(SYNCD_EXPAND_2(SYNCD_EXPAND_2(SYNCD_EXPAND_2(__VA_ARGS__))))
#define SYNCD_EXPAND_2(...) \
  SYNCD_EXPAND_1(SYNCD_EXPAND_1(SYNCD_EXPAND_1(SYNCD_EXPAND_1(__VA_ARGS__))))
#define SYNCD_EXPAND_1(...) __VA_ARGS__
#define SYNCD_NOTHING ()
#define SYNCD_FIELD(type, field, ...)                \
  , ::syncd::Field<#field, &type::field> __VA_OPT__( \
        SYNCD_FIELD_AGAIN SYNCD_NOTHING(type, __VA_ARGS__))
#define SYNCD_FIELD_AGAIN() SYNCD_FIELD
#define SYNCD_FIELDS(type, ...)                                                                  \
  constexpr auto fields_of(const type*) {                                                        \
    return ::syncd::FieldList<#type __VA_OPT__(SYNCD_EXPAND(SYNCD_FIELD(type, __VA_ARGS__)))>{}; \
  }
