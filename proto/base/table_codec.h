// Plain structs to FlatBuffers tables and back, from their lists of fields (fields.h). The codecs
// of wire.fbs and record.fbs are made of it. No thread.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <array>
#include <cstring>

#include "proto/base/fields.h"

namespace syncd::table {

using Builder = flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using flatbuffers::uoffset_t;
using flatbuffers::voffset_t;

// The number that a field is stored as.
template <class T>
struct NumberOf {
  using type = T;
};
template <class T>
requires std::is_enum_v<T>
struct NumberOf<T> {
  using type = std::underlying_type_t<T>;
};
template <>
struct NumberOf<bool> {
  using type = std::uint8_t;
};
template <class T>
struct NumberOf<std::optional<T>> : NumberOf<T> {};
template <class F>
using Number = typename NumberOf<typename StoredAs<F::member>::type>::type;

template <class T>
inline constexpr bool kIsNumber = std::is_arithmetic_v<T> || std::is_enum_v<T>;
template <class T>
inline constexpr bool kIsInline = kLayout<T> == Layout::kInline;

// A field's contents lie outside its table, which holds an offset to them.
template <class T>
inline constexpr bool kHasContents = !kIsNumber<T> && !kIsOptional<T> && !kIsInline<T>;

template <class F>
constexpr std::size_t size_in_table() {
  if constexpr (kIsNumber<typename F::Type> || kIsOptional<typename F::Type>) {
    return sizeof(Number<F>);
  } else {
    return sizeof(uoffset_t);  // flatc sorts a struct like an offset
  }
}

// The place of a field in a vtable.
constexpr voffset_t slot(std::size_t index) {
  return static_cast<voffset_t>((index + 2) * sizeof(voffset_t));
}

// ---- structs ------------------------------------------------------------------------------------

// A struct as it is stored: T's layout is FlatBuffers' own, but each byte of padding is 0. Its
// arguments are numbers, because FlatBuffers from 23 on takes a template of one type for an offset.
template <std::size_t kSize, std::size_t kAlignment>
struct alignas(kAlignment) PackedBytes {
  std::uint8_t bytes[kSize];
};
template <class T>
using Packed = PackedBytes<sizeof(T), alignof(T)>;

template <class T, class Value>
std::ptrdiff_t place(const T& object, const Value& field) {
  return reinterpret_cast<const char*>(&field) - reinterpret_cast<const char*>(&object);
}

template <class T>
Packed<T> pack(const T& object) {
  Packed<T> packed = {};
  for_each_field(object, [&](auto, const auto& value) {
    flatbuffers::WriteScalar(packed.bytes + place(object, value), value);
  });
  return packed;
}

template <class T>
void unpack(const std::uint8_t* bytes, T& object) {
  for_each_field(object, [&](auto, auto& value) {
    value = flatbuffers::ReadScalar<std::decay_t<decltype(value)>>(bytes + place(object, value));
  });
}

// ---- writing ------------------------------------------------------------------------------------

template <class T>
uoffset_t write(Builder& b, const T& object);

template <class F>
uoffset_t write_contents(Builder& b, const typename F::Owner& object) {
  using Type = typename F::Type;
  const Type& value = object.*F::member;
  if constexpr (!kHasContents<Type>) {
    return 0;
  } else if constexpr (HasFields<Type>) {
    return write(b, value);
  } else {
    if (!kWrittenEmpty<F::member> && value.empty()) return 0;
    if constexpr (std::is_same_v<Type, std::string>) {
      return b.CreateString(value).o;
    } else {
      using Item = typename ItemOf<Type>::type;
      if constexpr (kIsNumber<Item>) {
        return b.CreateVector(value).o;
      } else if constexpr (kIsInline<Item>) {
        std::vector<Packed<Item>> items;
        items.reserve(value.size());
        for (const Item& item : value) items.push_back(pack(item));
        return b.CreateVectorOfStructs(items.data(), items.size()).o;
      } else {
        std::vector<Offset<void>> items;
        items.reserve(value.size());
        for (const Item& item : value) items.emplace_back(write(b, item));
        return b.CreateVector(items.data(), items.size()).o;
      }
    }
  }
}

template <class F>
void add(Builder& b, voffset_t at, const typename F::Owner& object, uoffset_t contents) {
  using Type = typename F::Type;
  const Type& value = object.*F::member;
  if constexpr (kIsNumber<Type>) {
    b.AddElement(at, static_cast<Number<F>>(value), static_cast<Number<F>>(kAbsent<F::member>));
  } else if constexpr (kIsOptional<Type>) {
    if (value) b.AddElement(at, static_cast<Number<F>>(*value));
  } else if constexpr (kIsInline<Type>) {
    const Packed<Type> packed = pack(value);
    b.AddStruct(at, &packed);
  } else {
    if (contents != 0) b.AddElement(at, b.ReferTo(contents));
  }
}

// The order in which the contents of a table's fields are written, and then the fields. flatc's
// functions add the large ones first, the last of a size before the others.
template <class T>
constexpr auto orders() {
  using List = FieldsOf<T>;
  return []<std::size_t... I>(std::index_sequence<I...>) {
    std::array<std::size_t, List::count> contents = {I...};
    std::array<std::size_t, List::count> fields = {I...};
    const bool last[] = {kContentsLast<List::template At<I>::member>..., false};
    const std::size_t size[] = {size_in_table<typename List::template At<I>>()..., 0};
    std::ranges::sort(contents, {}, [&](std::size_t i) { return std::pair(last[i], i); });
    if (kLayout<T> == Layout::kBySize) {
      std::ranges::sort(fields, std::greater{},
                        [&](std::size_t i) { return std::pair(size[i], i); });
    }
    return std::pair(contents, fields);
  }
  (std::make_index_sequence<List::count>{});
}

template <class T>
inline constexpr auto kOrders = orders<T>();

template <class T>
uoffset_t write(Builder& b, const T& object) {
  using List = FieldsOf<T>;
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    [[maybe_unused]] std::array<uoffset_t, List::count> contents;
    ((contents[kOrders<T>.first[I]] =
          write_contents<typename List::template At<kOrders<T>.first[I]>>(b, object)),
     ...);
    const uoffset_t start = b.StartTable();
    (add<typename List::template At<kOrders<T>.second[I]>>(b, slot(kOrders<T>.second[I]), object,
                                                           contents[kOrders<T>.second[I]]),
     ...);
    return b.EndTable(start);
  }
  (std::make_index_sequence<List::count>{});
}

// ---- reading a buffer that was verified
// -----------------------------------------------------------

// What a codec has to say while a buffer is read. A refusal comes with the reason in `problem`.
struct Reader {
  // A text or a list of bytes is about to be copied.
  template <class F>
  bool take(std::size_t /*bytes*/) {
    return true;
  }
  // A table has been read.
  template <class T>
  bool accept(const T& /*object*/) {
    return true;
  }
  std::string problem;
};

// Many entries of a list may name one table: so many get room before the first of them is accepted.
inline constexpr uoffset_t kReservedMax = 4096;

template <class T, class R>
bool read(const flatbuffers::Table* t, T& object, R& reader);

template <class F, class R>
bool read_field(const flatbuffers::Table* t, voffset_t at, typename F::Owner& object, R& reader) {
  using Type = typename F::Type;
  using List = FieldsOf<typename F::Owner>;
  Type& value = object.*F::member;
  if constexpr (kIsNumber<Type>) {
    value = static_cast<Type>(t->GetField(at, static_cast<Number<F>>(kAbsent<F::member>)));
  } else if constexpr (kIsOptional<Type>) {
    if (t->CheckField(at)) value = t->GetField(at, Number<F>{});
  } else if constexpr (kIsInline<Type>) {
    const auto* bytes = t->GetStruct<const std::uint8_t*>(at);
    if (bytes == nullptr) {
      reader.problem = std::string(List::name) + " names no " + std::string(F::name);
      return false;
    }
    unpack(bytes, value);
  } else if constexpr (HasFields<Type>) {
    const auto* table = t->GetPointer<const flatbuffers::Table*>(at);
    return table == nullptr || read(table, value, reader);
  } else if constexpr (std::is_same_v<Type, std::string>) {
    const auto* text = t->GetPointer<const flatbuffers::String*>(at);
    if (text == nullptr) return true;
    if (!reader.template take<F>(text->size())) return false;
    value.assign(text->data(), text->size());
  } else {
    using Item = typename ItemOf<Type>::type;
    // All kinds of vectors begin with their length.
    const auto* items = t->GetPointer<const flatbuffers::Vector<std::uint8_t>*>(at);
    if (items == nullptr) return true;
    const std::uint8_t* bytes = items->Data();
    if constexpr (std::is_same_v<Item, std::uint8_t>) {
      if (!reader.template take<F>(items->size())) return false;
      value.assign(bytes, bytes + items->size());
    } else if constexpr (kIsNumber<Item>) {
      // The verifier looks at where a list's length is, not at where its numbers are.
      value.resize(items->size());
      for (Item& item : value) {
        std::memcpy(&item, bytes, sizeof item);
        item = flatbuffers::EndianScalar(item);
        bytes += sizeof item;
      }
    } else if constexpr (kIsInline<Item>) {
      if (reinterpret_cast<std::uintptr_t>(bytes) % alignof(Packed<Item>) != 0) {
        reader.problem = std::string(List::name) + " has a list at a wrong place";
        return false;
      }
      value.resize(items->size());
      for (Item& item : value) {
        unpack(bytes, item);
        bytes += sizeof(Packed<Item>);
      }
    } else {
      const auto* tables =
          reinterpret_cast<const flatbuffers::Vector<Offset<flatbuffers::Table>>*>(items);
      value.reserve(std::min(tables->size(), kReservedMax));
      for (uoffset_t i = 0; i < tables->size(); ++i) {
        if (!read(tables->Get(i), value.emplace_back(), reader)) return false;
      }
    }
  }
  return true;
}

// Fills `object`, which holds its defaults. False: see the reader's problem.
template <class T, class R>
bool read(const flatbuffers::Table* t, T& object, R& reader) {
  using List = FieldsOf<T>;
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return (read_field<typename List::template At<I>>(t, slot(I), object, reader) && ...) &&
           reader.accept(object);
  }
  (std::make_index_sequence<List::count>{});
}

}  // namespace syncd::table
