// Profiles: workloads described by a few numbers, made by a generator. traces/profiles/*.toml; what
// the keys mean is told in docs/traces.md.
//
// A profile is a mixture of streams. Each request belongs to one stream, drawn by the streams'
// shares; the stream says where it goes, its sizes say how large it is. All arithmetic is on
// integers, so the same profile and seed give the same requests on every machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "eplog/result.h"
#include "trace/request.h"
#include "trace/source.h"

namespace eplog {

struct ProfileSize {
  uint64_t bytes = 0;
  uint64_t weight = 0;
};

struct ProfileStream {
  enum class Kind : uint8_t {
    kUniform,     // anywhere in its range
    kZipf,        // on objects, some more often than others
    kSequential,  // runs of requests, each beginning where the last one of the run ended
  };
  Kind kind = Kind::kUniform;
  TraceOp op = TraceOp::kWrite;
  uint64_t read_percent = 0;  // so many of the stream's requests read instead
  uint64_t weight = 0;        // this stream's share of all requests, against the others' weights
  std::vector<ProfileSize> sizes;
  uint64_t align_bytes = 4096;  // offsets are multiples of it
  uint64_t begin_bytes = 0;     // the range of the stream
  uint64_t end_bytes = 0;
  bool fua = false;
  // kZipf: the object of rank r, from 1, is taken in proportion to r ^ -skew, skew in thousandths.
  // Its place in the range follows from a permutation, so that neighbours in rank are none in
  // place.
  uint64_t objects = 0;
  uint64_t object_bytes = 0;
  uint64_t skew_milli = 1000;
  // Every so many requests of the stream one object, drawn evenly, moves to another place of the
  // range: what is hot changes. 0: never.
  uint64_t drift_every = 0;
  // kSequential: how many runs go on at once, and the bytes after which one ends; the next begins
  // behind the last (wrapping at the end of the range), or anywhere if `scattered`.
  uint64_t runs = 1;
  uint64_t run_bytes = 0;
  bool scattered = false;
};

struct Profile {
  std::string name;
  std::string about;
  uint64_t seed = 1;
  // One of them ends the trace; the other is 0.
  uint64_t requests = 0;  // in all, but for flushes
  uint64_t writes = 0;
  uint64_t working_set_bytes = 0;  // offsets are below it
  uint64_t mean_interval_us = 0;   // between requests; exponentially distributed
  uint64_t flush_every = 0;        // a flush after so many writes; 0: none
  std::vector<ProfileStream> streams;
};

// `file` names the text in messages. kInvalidArgument with file, line, what and mend.
Result<Profile> ParseProfile(std::string_view text, const std::string& file);

// Profiles that the program brings along: names, and the text of one (nullptr: no such).
[[nodiscard]] std::vector<std::string> BuiltInProfiles();
[[nodiscard]] const std::string* BuiltInProfile(std::string_view name);

// Of a file (*.toml) or a name. kNotFound lists the names.
Result<Profile> LoadProfile(const std::string& name);

// The profile's requests, from `profile.seed`.
std::unique_ptr<TraceSource> MakeGenerator(Profile profile);

}  // namespace eplog
