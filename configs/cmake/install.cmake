# cmake --install BUILD --prefix PREFIX gives
#   bin/perdura                 the command line
#   libexec/perdura/            the programs that it starts
#   lib/perdura/                LibTorch's CPU runtime (465 MB), so that the build folder can go
#   share/perdura/configs/      job and cluster files
#   share/doc/perdura/
# and cmake --build BUILD --target uninstall removes exactly that, with the folders that installing made.
include(GNUInstallDirs)
set(PERDURA_LIBEXEC "${CMAKE_INSTALL_LIBEXECDIR}/perdura")
# Not GNUInstallDirs' lib/<architecture>: worker and libraries must find each other from wherever the prefix is.
set(PERDURA_LIB "lib/perdura")

set(folders ${CMAKE_INSTALL_BINDIR} ${PERDURA_LIBEXEC} ${PERDURA_LIB} ${CMAKE_INSTALL_DATADIR}/perdura/configs
            ${CMAKE_INSTALL_DATADIR}/perdura/configs/jobs ${CMAKE_INSTALL_DATADIR}/doc/perdura)
install(CODE "set(folders \"${folders}\")\nset(made \"${PROJECT_BINARY_DIR}/install_folders.txt\")")
install(SCRIPT "${CMAKE_CURRENT_LIST_DIR}/note_folders.cmake")

install(TARGETS perdura RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
foreach(program perdura-coordinator perdura-node perdura-worker)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../../${PERDURA_LIB}")
    install(TARGETS ${program} RUNTIME DESTINATION ${PERDURA_LIBEXEC})
  endif()
endforeach()
if(PERDURA_WORKER)
  set(runtime "${LIBTORCH_CPU_LIBRARY}" "${LIBTORCH_C10_LIBRARY}")
  foreach(name libgomp.so.1 libcupti.so.13 libcudart.so.13)
    find_file(found_${name} ${name} PATHS ${LIBTORCH_RPATH} NO_DEFAULT_PATH NO_CACHE)
    if(found_${name})
      list(APPEND runtime "${found_${name}}")
    endif()
  endforeach()
  install(PROGRAMS ${runtime} DESTINATION ${PERDURA_LIB})
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/configs/" DESTINATION ${CMAKE_INSTALL_DATADIR}/perdura/configs
        FILES_MATCHING PATTERN "*.toml" PATTERN cmake EXCLUDE)
install(FILES "${PROJECT_SOURCE_DIR}/README.md" DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/perdura OPTIONAL)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs/" DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/perdura)

add_custom_target(uninstall COMMAND "${CMAKE_COMMAND}" -D "build=${PROJECT_BINARY_DIR}" -P
                                    "${CMAKE_CURRENT_LIST_DIR}/uninstall.cmake" VERBATIM)
