// LOCKSTEP_PUBLIC: what the shared library liblockstep_core.so shows. Everything else of the core is compiled
// with hidden visibility: it can neither be called from outside nor clash with a name of the program.
//
//   namespace LOCKSTEP_PUBLIC lockstep {
//   class Store { ... };  // a program may use this class, throw it and catch it
//   }  // namespace lockstep
//
// The mark holds for the body of this one namespace. A namespace that is written `a::b` takes no mark, so the
// inner one is opened by itself. Every installed header of the core has the mark (cmake/LockstepInstall.cmake
// refuses others), and so has a header that the library above libtorch includes.
#pragma once

#define LOCKSTEP_PUBLIC [[gnu::visibility("default")]]
